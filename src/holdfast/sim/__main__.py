"""`python -m holdfast.sim`."""

import sys

from holdfast.sim.run import main

sys.exit(main(sys.argv[1:]))
