"""Tools: the contract, the decorator, and the built-in ones, one a file."""
