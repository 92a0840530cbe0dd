"""Tables of programs and their arguments, a TOML file per kind of program; ``catalog`` reads them all."""
