"""The worlds that are explored: small ones with the tests, the others by `python -m tests.model explore`."""

from typing import Final

from tests.model.state import Limits

SMALL_RUNS: Final[dict[str, Limits]] = {
    "three replicas, two epochs": Limits(epochs=2, appends=1),
    "two replicas and a lost disk": Limits(agents=2, epochs=2, appends=1, lost_disks=1, sets=(2,)),
}

RUNS: Final[dict[str, Limits]] = {
    **SMALL_RUNS,
    "two replicas, three epochs": Limits(agents=2, epochs=3, appends=1, sets=(2,)),
    "core, a lost disk": Limits(epochs=2, appends=2, lost_disks=1),
    "core, more appends": Limits(epochs=2, appends=3),
    "core, three epochs": Limits(epochs=3, appends=1),
    "publishing and clean moves": Limits(epochs=2, appends=2, publishes=True, retries=True),
    "drained hand-over": Limits(epochs=2, appends=2, hand_over=True),
    "every replica in sync": Limits(epochs=2, appends=2, min_insync=3),
    "factor 1, 2 and 3, changed live": Limits(epochs=2, appends=1, sets=(1, 2, 3)),
    "three of four, logs dropped": Limits(agents=4, epochs=2, appends=1, drops=True),
    "an unreadable replica begins anew": Limits(epochs=3, appends=1, begins_anew=True),
    "three of four, an unreadable replica begins anew": Limits(
        agents=4, epochs=2, appends=1, drops=True, begins_anew=True
    ),
    "two replicas, three epochs, a lost disk": Limits(agents=2, epochs=3, appends=2, lost_disks=1, sets=(2,)),
    "end offsets": Limits(epochs=2, appends=2, end_offsets=True),
}

EVERYTHING: Final = Limits(
    agents=4,
    epochs=4,
    appends=4,
    lost_disks=1,
    sets=(2, 3),
    publishes=True,
    hand_over=True,
    drops=True,
    begins_anew=True,
    retries=True,
    end_offsets=True,
)
