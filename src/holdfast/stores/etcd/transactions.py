"""Transactions: the contract's commits as etcd's, and etcd's answers as the contract's. No I/O.

The failure branch reads what was required, so that a lost race costs no second round trip. Messages are filled in place:
on the path of every commit that is twice as fast as putting them together from parts.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.contracts.store import AtVersion, Entry, Operation, Put, Requirement
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.commit_slots import CommitSlot
from holdfast.stores.etcd.keyspace import Keyspace, lease_of

_REFUSED: Final = b'"refused"'  # in a slot: the commit that was to write here must never land


def commit_request(
    keyspace: Keyspace, require: Sequence[Requirement], apply: Sequence[Operation], slot: CommitSlot, mark: bytes
) -> pb.TxnRequest:
    """A commit that lands only while its slot is as the writer left it, and writes its sequence there."""
    question = check_request(keyspace, require)
    require_revision(question, slot.key, slot.at)
    if not slot.at:
        # A slot that exists proves that this is the store it was written to; for a new one, the store's mark must.
        question.compare.add(target=pb.Compare.VALUE, key=keyspace.incarnation, value=mark)
    success = question.success
    for operation in apply:
        if type(operation) is Put:
            put = success.add().request_put
            put.key, put.value = keyspace.key(operation.key), operation.value
            if operation.session is not None:
                put.lease = lease_of(operation.session)
        else:
            success.add().request_delete_range.key = keyspace.key(operation.key)
    put = success.add().request_put
    put.key, put.value, put.lease = slot.key, b"%d" % slot.sequence, slot.writer.lease
    return question


def check_request(keyspace: Keyspace, require: Sequence[Requirement]) -> pb.TxnRequest:
    """Compares what is required; reads it if that fails."""
    question = pb.TxnRequest()
    for requirement in require:
        key = keyspace.key(requirement.key)
        require_revision(question, key, _version_in(requirement))
        question.failure.add().request_range.key = key
    return question


def refuse_request(key: bytes, at: int, lease: int) -> pb.TxnRequest:
    """Make a slot's outstanding commit impossible, or read what it left."""
    question = pb.TxnRequest()
    require_revision(question, key, at)
    put = question.success.add().request_put
    put.key, put.value, put.lease = key, _REFUSED, lease
    question.failure.add().request_range.key = key
    return question


def require_revision(question: pb.TxnRequest, key: bytes, revision: int) -> None:
    """Only if `key` was last written at `revision`; 0: only if it does not exist."""
    question.compare.add(target=pb.Compare.MOD, key=key, mod_revision=revision)


def pair_in(answer: pb.ResponseOp) -> pb.KeyValue | None:
    """What the read of one key found."""
    pairs = answer.response_range.kvs
    return pairs[0] if pairs else None


def found_in(keyspace: Keyspace, require: Sequence[Requirement], answer: pb.TxnResponse) -> dict[str, Entry | None]:
    """What the required keys held when a commit failed."""
    found: dict[str, Entry | None] = {}
    for requirement, response in zip(require, answer.responses, strict=True):
        pair = pair_in(response)
        found[requirement.key] = None if pair is None else keyspace.entry(pair)
    return found


def is_lost_race(require: Sequence[Requirement], found: Mapping[str, Entry | None]) -> bool:
    """Whether some requirement does not hold in what was found."""
    for requirement in require:
        entry = found[requirement.key]
        if (0 if entry is None else entry.version) != _version_in(requirement):
            return True
    return False


def _version_in(requirement: Requirement) -> int:
    return requirement.version if type(requirement) is AtVersion else 0
