"""Pure plans for freeing context: when to, what to prune, where to cut, and what makes a valid summary. No I/O, no
clock."""
