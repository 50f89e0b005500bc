"""Every suite, in the order of the page.

A suite is a module here, an entry below, and `expected/NAME.yaml` where something fails.
"""

from collections.abc import Sequence
from typing import Final

from conformance.model import Suite
from conformance.suites.franz_go import FranzGo
from conformance.suites.librdkafka import Librdkafka

SUITES: Final[Sequence[Suite]] = (FranzGo(), Librdkafka())
