"""``python -m mlxfill``."""

import sys

from mlxfill.cli import main

sys.exit(main())
