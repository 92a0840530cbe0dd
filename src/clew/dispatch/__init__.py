"""Dispatch: starting turns without a user. Events, schedules and webhooks share one entry point."""
