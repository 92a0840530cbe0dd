"""The version of clew, read by the build and by ``clew --version``."""

__version__ = "0.2.0"
