"""The store: the contract, its units, and the implementations."""
