"""One adapter per library. Each runs in an environment of its own: the standard library and the peer only."""
