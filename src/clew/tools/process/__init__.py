"""Programs that tools run: below a warden that ends all they start, inside a sandbox where one is asked for."""
