"""`python -m holdfast` is `holdfast`."""

import sys

from holdfast.cli.main import main

sys.exit(main())
