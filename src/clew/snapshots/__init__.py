"""Saved states of workspaces."""
