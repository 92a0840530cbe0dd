"""Builders, fakes and generators for tests of clew and of programs built on it."""
