"""Permissions: rules and targets in, a decision with its reasons out. No I/O."""
