"""The rules of the protocol, each with a bug that breaks it and the smallest world in which that shows."""

from typing import Final

from tests.model.state import Limits

_THREE: Final = Limits(agents=3, epochs=3, appends=3)
_TWO_EPOCHS: Final = Limits(agents=3, epochs=2, appends=2)
_OF_FOUR: Final = Limits(agents=4, epochs=3, appends=2, sets=(3,), drops=True)

PLANTED_BUGS: Final[dict[str, Limits]] = {
    "longest instead of highest epoch": _THREE,
    "acknowledged by the leader alone": _TWO_EPOCHS,
    "in-sync set shrunk locally": _TWO_EPOCHS,
    "in-sync set shrunk by a commit": _TWO_EPOCHS,
    "served when chosen": _THREE,
    "no epoch-start entry": Limits(agents=3, epochs=4, appends=2),
    "one fewer sealed": _TWO_EPOCHS,
    "sealed by the new set's size": Limits(agents=3, epochs=2, appends=1, sets=(1, 3)),
    "promise lost in a restart": _TWO_EPOCHS,
    "log read before the promise": _TWO_EPOCHS,
    "no promise": _TWO_EPOCHS,
    "leader's own WAL ignores the promise": _TWO_EPOCHS,
    "entries stamped again": Limits(agents=3, epochs=3, appends=2),
    "late short APPEND truncates": _TWO_EPOCHS,
    "late BASE resets": _TWO_EPOCHS,
    "promise forgotten with the log": _OF_FOUR,
    "dropped before the open commit": _OF_FOUR,
    "dropped in a recovery that counts it": Limits(agents=4, epochs=4, appends=1, drops=True),
    "begins anew though it has acknowledged": Limits(agents=3, epochs=2, appends=1, begins_anew=True),
    "empty disk under the old name": Limits(agents=3, epochs=2, appends=1, lost_disks=1),
    "resumed after a restart": _TWO_EPOCHS,
    "served before the open commit": Limits(agents=4, epochs=3, appends=1, sets=(3,)),
    "open committed before w have the log": Limits(agents=4, epochs=3, appends=1, sets=(3,)),
    "set changed within an epoch": Limits(agents=4, epochs=2, appends=1, sets=(3,)),
    "sealed the set that was acquired last": Limits(agents=4, epochs=3, appends=1, sets=(3,)),
    "follower shows its log end": _TWO_EPOCHS,
    "hw applied to an unmatched log": _THREE,
    "publish up to the log end": Limits(agents=3, epochs=2, appends=1, publishes=True),
    "publish unfenced": Limits(agents=3, epochs=2, appends=2, publishes=True),
    "producers not rebuilt from the tail": Limits(agents=3, epochs=2, appends=1, retries=True),
    "producers kept from an older epoch": Limits(agents=3, epochs=3, appends=1, retries=True),
    "duplicate answered at once": Limits(agents=3, epochs=2, appends=1, retries=True),
    "append after giving the reservation back": Limits(agents=3, epochs=2, appends=2, publishes=True),
    "drained source goes on": Limits(agents=3, epochs=2, appends=2, hand_over=True),
    "target's log too short": Limits(agents=3, epochs=2, appends=2, hand_over=True),
    "local opened elsewhere without its WAL": Limits(agents=2, epochs=2, appends=1, sets=(1,)),
    "reads without the epoch": Limits(agents=3, epochs=3, appends=2, end_offsets=True),
}


def with_bug(bug: str) -> Limits:
    return PLANTED_BUGS[bug]._replace(bug=bug)
