"""The bench: clew's public paths against a hand-written floor, in the same run. ``python -m bench``."""
