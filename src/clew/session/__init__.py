"""Sessions: acquiring them, running their turns, their context and history, and the API over all of it."""
