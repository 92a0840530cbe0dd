"""What programs do with their arguments: a TOML table for each kind of program; ``catalog`` reads them all."""
