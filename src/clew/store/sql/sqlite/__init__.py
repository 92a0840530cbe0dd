"""The SQLite engine: its SQL files, its connections, its single writer thread."""
