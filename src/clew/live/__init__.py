"""What exists only while processes run: streams being watched, status, events."""
