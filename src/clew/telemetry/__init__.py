"""Metrics and traces of turns, model calls, tool calls and compactions."""
