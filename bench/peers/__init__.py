"""The same turns on two other engines, each in its own environment: ``python -m bench.peers``."""
