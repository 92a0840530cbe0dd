"""Tools: the contract (``base``), functions as tools (``decorator``), and the built-in ones, one a file.

A call's arguments are checked (``arguments``), what it would touch is judged by the rules, then it is executed; what
it gives back is made to fit (``output``). Blocking work is done beside the loop (``thread``). What the
built-in tools stand on is in ``files``, ``process`` and ``web``.
"""
