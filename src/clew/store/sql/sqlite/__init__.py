"""What only SQLite needs: its SQL files, its connections, its one writer thread."""
