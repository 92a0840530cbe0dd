"""Tables of what programs do with their arguments, one module for each kind of program."""
