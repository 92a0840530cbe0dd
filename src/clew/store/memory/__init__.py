"""Sessions held as values: the memory store, and what the file stores are built on."""
