"""State that exists only while processes run: watched streams, statuses, events."""
