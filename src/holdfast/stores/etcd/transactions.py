"""Transactions: the contract's commits as etcd's, and etcd's answers as the contract's. No I/O.

The failure branch reads what was required, so that a lost race costs no second round trip.
"""

from collections.abc import Sequence

from holdfast.contracts.store import AtVersion, Entry, Operation, Put, Requirement
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.keyspace import Keyspace, lease_of
from holdfast.stores.etcd.slots import Slot

REFUSED = b'"refused"'  # in a slot: the commit that was to write here must never land


def commit_question(
    keyspace: Keyspace, require: Sequence[Requirement], apply: Sequence[Operation], slot: Slot, mark: bytes
) -> pb.TxnRequest:
    """A commit that lands only while its slot is as the writer left it, and marks it."""
    question = reading_question(keyspace, require)
    success = question.success
    question.compare.append(at_revision(slot.key, slot.at))
    question.failure.append(read(slot.key))
    if not slot.at:
        # A slot that exists proves that this is the store it was written to; for a new one, the store's mark must.
        question.compare.append(pb.Compare(target=pb.Compare.VALUE, key=keyspace.incarnation, value=mark))
        question.failure.append(read(keyspace.incarnation))
    for operation in apply:
        if type(operation) is Put:
            put = pb.PutRequest(key=keyspace.key(operation.key), value=operation.value)
            if operation.session is not None:
                put.lease = lease_of(operation.session)
            success.append(pb.RequestOp(request_put=put))
        else:
            gone = pb.DeleteRangeRequest(key=keyspace.key(operation.key))
            success.append(pb.RequestOp(request_delete_range=gone))
    written = pb.PutRequest(key=slot.key, value=b"%d" % slot.sequence, lease=slot.writer.lease)
    success.append(pb.RequestOp(request_put=written))
    return question


def reading_question(keyspace: Keyspace, require: Sequence[Requirement]) -> pb.TxnRequest:
    """Compares what is required; reads it if that fails."""
    question = pb.TxnRequest()
    for requirement in require:
        key = keyspace.key(requirement.key)
        version = requirement.version if type(requirement) is AtVersion else 0
        question.compare.append(at_revision(key, version))
        question.failure.append(read(key))
    return question


def refusing_question(key: bytes, at: int, lease: int) -> pb.TxnRequest:
    """Make a slot's outstanding commit impossible, or read what it left."""
    question = pb.TxnRequest()
    question.compare.append(at_revision(key, at))
    question.success.append(pb.RequestOp(request_put=pb.PutRequest(key=key, value=REFUSED, lease=lease)))
    question.failure.append(read(key))
    return question


def at_revision(key: bytes, revision: int) -> pb.Compare:
    """Holds if `key` was last written at `revision`; 0: if it does not exist."""
    return pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=revision)


def read(key: bytes) -> pb.RequestOp:
    """One key, read inside a transaction."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def pair_in(answer: pb.ResponseOp) -> pb.KeyValue | None:
    """What `read` found."""
    pairs = answer.response_range.kvs
    return pairs[0] if pairs else None


def found_in(keyspace: Keyspace, require: Sequence[Requirement], answer: pb.TxnResponse) -> dict[str, Entry | None]:
    """What the required keys held when a commit failed."""
    found: dict[str, Entry | None] = {}
    for requirement, response in zip(require, answer.responses, strict=False):  # more may follow
        pair = pair_in(response)
        found[requirement.key] = None if pair is None else keyspace.entry(pair)
    return found
