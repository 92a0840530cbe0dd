"""Pure values and rules: what a transcript is made of and what may happen to it. No I/O, no clock, no ids minted."""
