"""Models: the contract, the catalogue of what is known about them, and one module for each way to reach them."""
