"""The SQL stores: SQL statements in files, and the code that applies units with them."""
