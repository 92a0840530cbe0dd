"""Benchmarks: clew's public API against a hand-written floor, in the same run. ``python -m bench``."""
