"""``python -m torch_mojo_backend``: see ``--help``."""

import sys

from torch_mojo_backend.cli import main

if __name__ == "__main__":
    sys.exit(main())
