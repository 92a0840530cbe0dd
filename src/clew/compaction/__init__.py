"""Pure plans for making room: when, what to prune, where to cut, and what a summary must be. No I/O, no clock."""
