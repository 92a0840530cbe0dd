"""Programs that tools run: below a supervisor that ends all they start, inside a sandbox where one is asked for."""
