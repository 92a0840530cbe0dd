"""Triggers as pure values and rules: events, due times, webhooks, signatures. No I/O."""
