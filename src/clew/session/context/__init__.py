"""The context of the next model call: its size, pruning, compaction and summaries."""
