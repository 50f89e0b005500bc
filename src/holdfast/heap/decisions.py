"""What a leader decides about a partition: the operations to append, by the state, the settings, the time and chance. Pure.

The one rule: a decision is applied before the next one is made. Whoever calls these appends what they return, in that order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.heap.config import HeapConfig
from holdfast.heap.dedup import INTERNAL, KnownEnqueue
from holdfast.heap.errors import (
    MESSAGE_GONE,
    LeaseLostError,
    ProducerFencedError,
    ResourceExhaustedError,
    SequenceForgottenError,
)
from holdfast.heap.fairness.rules import OFF, FairRules
from holdfast.heap.lease_token import LeaseToken
from holdfast.heap.partition_state import HeapState, MessageLease
from holdfast.heap.records import Extend, Forget, Grant, Move, Op, ProducerSequence, Ready, Retry
from holdfast.vocabulary.random import Random

REASON_CHARS_MAX = 1_000
EXPIRED = "lease expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapRules:
    """What decisions stand on: the heap's settings, how much of them is this partition's, and where its dead letters go."""

    topic: str
    config: HeapConfig
    inflight_max: int
    fair: FairRules = OFF
    dead_letters: tuple[str, int] | None = None  # topic and partition; None: what fails is tried again for ever


def known_enqueue(state: HeapState, key: ProducerSequence, window_ms: int, now_ms: int) -> KnownEnqueue | None:
    """The message that was enqueued under this key, if it was. `ProducerFencedError`, `SequenceForgottenError`."""
    known = state.dedup.find(key)
    internal = key.producer.startswith(INTERNAL)
    if known is not None and (internal or known.enqueued_ms > now_ms - window_ms):
        return known
    if internal:
        return None
    newest = state.dedup.newest_epoch(key.producer)
    if newest is not None and key.epoch < newest:
        raise ProducerFencedError(key.producer, key.epoch, newest)
    floor = state.dedup.floor(key)
    if floor is not None:
        raise SequenceForgottenError(key.producer, key.sequence, floor)
    return None


def check_epoch_here(epochs: dict[str, int], key: ProducerSequence) -> None:
    """`ProducerFencedError`: a message before this one, in the same request, has a newer epoch of its producer."""
    newest = epochs.setdefault(key.producer, key.epoch)
    if key.epoch < newest and not key.producer.startswith(INTERNAL):
        raise ProducerFencedError(key.producer, key.epoch, newest)
    epochs[key.producer] = key.epoch


def decide_grant(
    state: HeapState, rules: HeapRules, *, count: int, consumer: str, visibility_ms: int, epoch: int, now_ms: int
) -> Grant | None:
    """Lease out up to `count` messages from the top. None: there is none that may go, or no room in flight.

    `ResourceExhaustedError`: the consumer has as many leases as it may have.
    """
    held, limit = state.consumers.get(consumer, 0), rules.config.leases_per_consumer_max
    if held >= limit:
        raise ResourceExhaustedError(f"leases of consumer {consumer!r}", held, limit)
    room = min(count, limit - held, rules.inflight_max - len(state.leases))
    if state.fair is not None:
        state.fair.tick(now_ms)
    entries = state.take(room) if room > 0 else ()
    return Grant(epoch, now_ms + visibility_ms, consumer, entries) if entries else None


def current_lease(state: HeapState, topic: str, token: LeaseToken) -> MessageLease:
    """The lease that a token names. `LeaseLostError`: it is not the current one."""
    lease = state.leases.get(token.offset)
    if lease is None or lease.granted_at != token.granted_at or lease.epoch != token.epoch:
        raise lost_lease(state, topic, token)
    return lease


def lost_lease(state: HeapState, topic: str, token: LeaseToken) -> LeaseLostError:
    """Why a token does not name the current lease of its message."""
    if token.offset in state.leases:
        return LeaseLostError(topic, "", "the message was leased to another consumer since")
    if token.offset in state:
        return LeaseLostError(topic, "", "it ended, and the message waits again")
    return LeaseLostError(topic, "", "it was the last try" if state.needs(token.offset) else MESSAGE_GONE)


def decide_failure(
    state: HeapState,
    rules: HeapRules,
    op: Op,
    offsets: Sequence[int],
    *,
    now_ms: int,
    random: Random,
    backoff_ms: int | None = None,
    reason: str = "",
) -> list[Retry | Move]:
    """What follows when leases end without an ack: another try after a pause, or the way to the dead letters.

    `backoff_ms`: the pause, if the consumer chose one.
    """
    reason = reason[:REASON_CHARS_MAX]
    again: list[tuple[int, int]] = []
    moves: list[Retry | Move] = []
    for offset in offsets:
        attempts = state.attempts.get(offset, 0) + 1
        if op is Op.RELEASE:
            again.append((offset, now_ms + backoff_ms if backoff_ms else 0))
        elif attempts > state.retries.get(offset, rules.config.max_retries) and rules.dead_letters is not None:
            topic, partition = rules.dead_letters
            priority = state.priority(state.leases[offset].rank)
            moves.append(Move(offset, priority, topic, partition, attempts, reason or _reason(op)))
        else:
            pause_ms = backoff_ms if backoff_ms is not None else _backoff_ms(rules.config, attempts, random)
            again.append((offset, now_ms + pause_ms if pause_ms else 0))
    return ([Retry(op, tuple(again), reason)] if again else []) + moves


def decide_extension(
    state: HeapState, rules: HeapRules, tokens: Sequence[LeaseToken], extension_ms: int, now_ms: int
) -> Extend:
    """The leases with a deadline that is `extension_ms` from now, capped by `lease_ms_max` after their grant, never sooner."""
    entries = []
    for token in tokens:
        lease = current_lease(state, rules.topic, token)
        latest_ms = lease.granted_ms + rules.config.lease_ms_max
        entries.append((token.offset, max(lease.deadline_ms, min(now_ms + extension_ms, latest_ms))))
    return Extend(tuple(entries))


def decide_due(state: HeapState, now_ms: int, count: int) -> Ready | None:
    """The delayed messages whose time has come."""
    entries = state.due(now_ms, count)
    return Ready(entries) if entries else None


def decide_fairness(state: HeapState, rules: HeapRules, now_ms: int, *, begins: bool) -> FairRules | None:
    """The rules to log, if they changed, or if a leadership begins under a clock that is behind the last one's."""
    ahead = begins and state.fair is not None and state.fair.is_ahead_of(now_ms)
    return rules.fair if ahead or rules.fair != state.fair_rules else None


def decide_forget(state: HeapState, *, window_ms: int, count_max: int, now_ms: int) -> Forget | None:
    """What to forget of producers: what is older than the window, and the older half if there is too much."""
    if state.dedup.count > count_max:
        return Forget(state.dedup.median_ms(), keep_floor=True)
    oldest_ms = state.dedup.oldest_ms()
    if oldest_ms is not None and oldest_ms < now_ms - 2 * window_ms:
        return Forget(now_ms - window_ms, keep_floor=False)
    return None


def _reason(op: Op) -> str:
    return EXPIRED if op is Op.EXPIRE else "refused by its consumer"


def _backoff_ms(config: HeapConfig, attempts: int, random: Random) -> int:
    pause_ms = min(config.backoff_cap_ms, config.backoff_base_ms * 2.0 ** min(attempts - 1, 40))
    return max(0, round(random.jitter(pause_ms, share=config.backoff_jitter)))
