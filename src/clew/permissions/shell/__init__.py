"""Shell lines: what bash would run, and which files it would touch."""
