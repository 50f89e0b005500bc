"""What a replication factor means: -1 and 1 follow the topic's durability, 2 and 3 are `quorum`. Pure.

More than there are live agents of the topic's group is refused, or capped where `kafka.replication_factor` says so: tools that ask
for 3 as a matter of course then get what there is. A durability that was asked for by name is never lowered.
"""

import logging
from collections.abc import Mapping
from typing import Final

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import ApiError
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.model import QUORUM, REPLICAS_MAX
from holdfast.log.topic_config import DEFAULT_GROUP, REPLICAS_MIN, replication_changes
from holdfast.log.topics import Topic

_log: Final = logging.getLogger(__name__)

BROKER_DEFAULT: Final = -1
_CAP: Final = "cap"


def live_agents(backend: KafkaBackend, group: object = DEFAULT_GROUP) -> int:
    """How many agents could keep replicas of a topic of this group."""
    return sum(member.group == group for member in backend.cluster.members)


def new_topic_settings(
    name: str, requested: int, given: Mapping[str, object], *, agents: int, settings: KafkaSettings
) -> dict[str, object]:
    """The settings of a new topic: what was given, and what the factor adds. `agents`: the live ones of its group."""
    durability, factor = given.get("durability"), requested
    if factor in (BROKER_DEFAULT, 1):  # one above stands for itself: a mirror copies the settings of another cluster
        factor = int(str(given.get("replication_factor", factor)))
    if factor == BROKER_DEFAULT and durability is None:
        factor = settings.default_replication_factor
    if factor < 1 and factor != BROKER_DEFAULT:
        raise _refused(factor, "larger than 0, or -1")
    if factor <= 1:
        if durability != QUORUM:
            return dict(given)
        factor = default_factor(agents, settings)
    elif durability not in (None, QUORUM):
        if settings.replication_factor != _CAP:
            raise _refused(factor, f"1 or -1 with holdfast.durability={durability}: several replicas are {QUORUM}")
        _log.info("topic %s gets 1 replica instead of %d: its durability is %s", name, factor, durability)
        return dict(given)
    factor = _possible(name, factor, agents, settings, least=REPLICAS_MIN if durability == QUORUM else 1)
    if factor == 1:
        return {field: value for field, value in given.items() if field != "replication_factor"}
    return {**given, "durability": QUORUM, "replication_factor": factor}


def altered_settings(
    topic: Topic, changes: Mapping[str, object | None], *, agents: int, settings: KafkaSettings
) -> dict[str, object | None]:
    """The changes of a topic's settings, and what they mean for its factor. `agents`: the live ones of its group afterwards."""
    all_changes = replication_changes(topic.config, changes, default_factor=default_factor(agents, settings))
    factor = all_changes.get("replication_factor")
    if isinstance(factor, int) and factor > topic.config.replication_factor:
        all_changes["replication_factor"] = _possible(topic.name, factor, agents, settings, least=REPLICAS_MIN)
    return all_changes


def default_factor(agents: int, settings: KafkaSettings) -> int:
    """The factor of a topic that is to be `quorum` and has none: as set, else 3, or 2 where there are no more agents."""
    if settings.default_replication_factor >= REPLICAS_MIN:
        return settings.default_replication_factor
    return min(REPLICAS_MAX, max(agents, REPLICAS_MIN))


def _possible(name: str, factor: int, agents: int, settings: KafkaSettings, *, least: int) -> int:
    """The factor, or as much of it as there can be. Fewer than `least` is refused in any case."""
    most = min(agents, REPLICAS_MAX)
    if factor <= most:
        return factor
    if settings.replication_factor == _CAP and most >= least:
        there = f"live agents: {agents}" if agents < factor else "a partition has no more"
        replicas = "replica" if most == 1 else "replicas"
        _log.info(
            "topic %s gets %d %s instead of %d (kafka.replication_factor=cap); %s", name, most, replicas, factor, there
        )
        return most
    if factor > REPLICAS_MAX:
        raise _refused(factor, f"between 1 and {REPLICAS_MAX}, or -1; kafka.replication_factor=cap accepts more")
    raise ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be reached "
        f"because only {agents} broker(s) are registered. (kafka.replication_factor=cap would give what there is.)",
    )


def _refused(factor: int, allowed: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"invalid replication factor {factor}: must be {allowed}")
