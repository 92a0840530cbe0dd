"""``clew chat``: a conversation on a terminal."""
