"""Where transcripts live: the contract, its units, and the stores that keep it."""
