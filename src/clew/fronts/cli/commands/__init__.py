"""The commands, one module per subject. A command is a function; its parameters are its arguments and options."""
