"""Transactions: the contract's commits as etcd's, and etcd's responses as the contract's. No I/O.

The failure branch reads what was required, so that a lost race costs no second round trip. Messages are filled in place:
on the path of every commit that is twice as fast as composing them from parts.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.contracts.store import AtVersion, Entry, Operation, Put, Requirement
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.commit_slots import CommitSlot
from holdfast.stores.etcd.keyspace import Keyspace, lease_of

_REFUSED: Final = b'"refused"'  # in a slot: the commit that was to write here must never be applied


def commit_request(
    keyspace: Keyspace, require: Sequence[Requirement], apply: Sequence[Operation], slot: CommitSlot, record: bytes
) -> pb.TxnRequest:
    """A commit that is applied only if its slot is as the writer left it, and writes its sequence there."""
    request = check_request(keyspace, require)
    require_revision(request, slot.key, slot.at)
    if not slot.at:
        # A slot that exists proves that this is the same store; for a new one, the incarnation record does.
        request.compare.add(target=pb.Compare.VALUE, key=keyspace.incarnation, value=record)
    success = request.success
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
    return request


def check_request(keyspace: Keyspace, require: Sequence[Requirement]) -> pb.TxnRequest:
    """Compare what is required; read it if that fails."""
    request = pb.TxnRequest()
    for requirement in require:
        key = keyspace.key(requirement.key)
        require_revision(request, key, _version_in(requirement))
        request.failure.add().request_range.key = key
    return request


def refuse_request(key: bytes, at: int, lease: int) -> pb.TxnRequest:
    """Block a slot's outstanding commit, or read what it wrote."""
    request = pb.TxnRequest()
    require_revision(request, key, at)
    put = request.success.add().request_put
    put.key, put.value, put.lease = key, _REFUSED, lease
    request.failure.add().request_range.key = key
    return request


def require_revision(request: pb.TxnRequest, key: bytes, revision: int) -> None:
    """Only if `key` was last written at `revision`; 0: only if it does not exist."""
    request.compare.add(target=pb.Compare.MOD, key=key, mod_revision=revision)


def pair_in(response: pb.ResponseOp) -> pb.KeyValue | None:
    """The pair in the read of one key."""
    pairs = response.response_range.kvs
    return pairs[0] if pairs else None


def found_in(keyspace: Keyspace, require: Sequence[Requirement], response: pb.TxnResponse) -> dict[str, Entry | None]:
    """The entries of the required keys when a commit failed."""
    found: dict[str, Entry | None] = {}
    for requirement, each in zip(require, response.responses, strict=True):
        pair = pair_in(each)
        found[requirement.key] = None if pair is None else keyspace.entry(pair)
    return found


def is_lost_race(require: Sequence[Requirement], found: Mapping[str, Entry | None]) -> bool:
    """Whether some requirement does not hold in `found`."""
    for requirement in require:
        entry = found[requirement.key]
        if (0 if entry is None else entry.version) != _version_in(requirement):
            return True
    return False


def _version_in(requirement: Requirement) -> int:
    return requirement.version if type(requirement) is AtVersion else 0
