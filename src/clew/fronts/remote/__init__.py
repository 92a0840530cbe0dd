"""The engine of a running server, reached over HTTP: for commands beside it, and for ``clew.client``."""
