"""The SQL stores: plain SQL in files, and the code that turns units into it."""
