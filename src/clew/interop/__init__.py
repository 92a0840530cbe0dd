"""Sessions as files: export for people and other programs, and import. Pure, without a store."""
