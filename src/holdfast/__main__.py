"""`python -m holdfast` is `holdfast`."""

import sys

from holdfast.cli.entry import run

sys.exit(run())
