"""`python -m bkctl`."""

import sys

from bkctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
