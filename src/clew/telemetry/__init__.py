"""What turns, model calls, tools and compactions took and used: counted, and told to whoever listens."""
