"""Other programs' sessions: read as they lie on disk, and written as those programs read them."""
