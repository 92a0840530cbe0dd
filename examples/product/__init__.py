"""A small product on clew: a help desk with logins of its own, in which nobody sees anything of anybody else."""
