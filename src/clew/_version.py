"""The version of clew, read by the build and by ``clew --version``."""

__version__ = "0.1.0"
