"""Turns that no human typed: what starts them, as pure values and rules. What acts on them is ``clew.dispatch``."""
