"""Files as tools touch them: where a path leads, opening without links, walking, globbing, searching."""
