"""What runs a session: recorder, recovery, and later the loop around a model."""
