"""Sessions as files: the memory store plus a codec."""
