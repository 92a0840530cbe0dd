"""Acquiring a session: who may run it, what is loaded and settled first, and recovery after a crash."""
