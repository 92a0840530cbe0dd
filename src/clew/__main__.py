"""``python -m clew``: the same as the command ``clew``."""

import sys

from clew.fronts.cli import main

if __name__ == "__main__":
    sys.exit(main())
