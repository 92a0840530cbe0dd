"""Permissions: rules and targets in, a decision with its reasons out. No I/O.

``evaluate`` weighs, ``explain`` says why, ``rules_for`` is what an answer stores, ``parse_rules`` and
``default_rules`` are where rules come from. How a target is matched has a module for each kind: ``paths``,
``hosts``, and for shell lines ``tokens`` and ``shell`` (two readings that must agree), ``wrappers`` and ``commands``.
"""
