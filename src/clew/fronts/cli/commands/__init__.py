"""The commands, a module for each subject. A command is a function; its options are its parameters."""
