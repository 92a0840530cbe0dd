"""Prompts: admission, the queue, the turn config, attached files and titles."""
