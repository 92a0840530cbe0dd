"""Two other engines with the same whole turns, each in an environment of its own: ``python -m bench.peers``."""
