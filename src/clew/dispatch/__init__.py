"""Dispatch: what starts turns that no human typed. Events from outside, schedules and webhooks, all by one way in."""
