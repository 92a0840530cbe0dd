"""The engine of a running server, accessed over HTTP: for commands of the same machine, and for ``clew.client``."""
