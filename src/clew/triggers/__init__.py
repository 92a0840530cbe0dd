"""Triggers: events, schedules and webhooks that start turns without a user. They share one entry point."""
