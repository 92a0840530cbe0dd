"""Triggers of turns without a user, as pure values and rules. ``clew.dispatch`` acts on them."""
