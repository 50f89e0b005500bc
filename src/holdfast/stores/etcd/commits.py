"""Commits: sends them, and resolves those whose answers were lost.

The one rule: an outcome is returned only when it is known. `commit_slots` explains how, `transactions` holds the requests.
"""

from collections.abc import Sequence

from holdfast.contracts.store import Committed, Conflict, NotCommitted, Operation, Put, Requirement
from holdfast.stores.errors import AnswerLostError
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.commit_slots import CommitId, CommitSlot, CommitSlots
from holdfast.stores.etcd.errors import LeaseNotFoundError
from holdfast.stores.etcd.identity_guard import IdentityGuard
from holdfast.stores.etcd.keyspace import Keyspace, lease_of
from holdfast.stores.etcd.rpc_methods import LEASE_TIME_TO_LIVE, TXN
from holdfast.stores.etcd.transactions import (
    check_request,
    commit_request,
    found_in,
    is_lost_race,
    pair_in,
    refuse_request,
)
from holdfast.vocabulary.errors import HoldfastError, InvalidError, OutcomeUnknownError


class CommitSender:
    """The writing half of a store."""

    def __init__(
        self, client: EtcdClient, slots: CommitSlots, guard: IdentityGuard, keyspace: Keyspace, record: bytes
    ) -> None:
        self._client, self._slots, self._guard, self._keyspace = client, slots, guard, keyspace
        self._record = record

    async def commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        """As in the contract, with at least one operation."""
        while True:
            slot = await self._slots.take()
            try:
                outcome = await self._send(slot, require, apply)
            except LeaseNotFoundError:
                # Either a session or this writer is dead; in the second case nothing was done and a new writer may retry.
                if await self._slots.check(slot.writer):
                    return await self._dead_session(require, apply)
            else:
                if outcome is not None:
                    return outcome

    async def check(self, require: Sequence[Requirement]) -> Committed | Conflict:
        """A commit without operations: a consistent read of what is required."""
        request = check_request(self._keyspace, require)
        # The read makes the transaction linearizable: without one, a member responds from its own state.
        request.success.add().request_range.key = self._keyspace.incarnation
        known_version = self._guard.check()
        response = await self._client.call(TXN, request)
        self._guard.observe(response.header, known_version)
        if not response.succeeded:
            return Conflict(found_in(self._keyspace, require, response))
        self._guard.observe_record(response.header.revision, pair_in(response.responses[0]), known_version)
        return Committed(response.header.revision)

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        """As in the contract."""
        parsed = CommitId.parse(commit_id)
        request = refuse_request(self._keyspace.slot(parsed.lease, parsed.number), parsed.at, parsed.lease)
        known_version = self._guard.check()
        try:
            response = await self._client.call(TXN, request)  # idempotent: a repeated request finds the first
        except LeaseNotFoundError:
            raise _too_late(commit_id) from None
        self._guard.observe(response.header, known_version)
        if response.succeeded:
            return NotCommitted()
        pair = pair_in(response.responses[0])
        if pair is None:
            raise _too_late(commit_id)
        return Committed(pair.mod_revision) if pair.value == b"%d" % parsed.sequence else NotCommitted()

    async def _send(
        self, slot: CommitSlot, require: Sequence[Requirement], apply: Sequence[Operation]
    ) -> Committed | Conflict | None:
        """Send a commit and free or retire its slot. None: the slot or the store had changed; retry."""
        reusable = False  # a cancelled commit has an unknown outcome too
        try:
            request = commit_request(self._keyspace, require, apply, slot, self._record)
            known_version = self._guard.check()
            response = await self._client.call(TXN, request, repeatable=False)
            if response.succeeded:
                slot.at, reusable = response.header.revision, True
                self._guard.observe(response.header, known_version)
                return Committed(response.header.revision)
            self._guard.observe(response.header, known_version)
            found = found_in(self._keyspace, require, response)
            if is_lost_race(require, found):
                reusable = True
                return Conflict(found)
        except AnswerLostError as lost:
            raise OutcomeUnknownError(slot.commit_id, str(lost)) from None
        except HoldfastError:
            reusable = True  # refused, or never sent
            raise
        finally:
            if reusable:
                self._slots.give_back(slot)
            else:
                self._slots.retire(slot)
        await self._guard.verify()  # the requirements held, so slot or record are missing: perhaps the whole store
        return None

    async def _dead_session(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Conflict:
        sessions = dict.fromkeys(each.session for each in apply if type(each) is Put and each.session is not None)
        dead = next(iter(sessions))
        for session in sessions:
            request = pb.LeaseTimeToLiveRequest(ID=lease_of(session))
            try:
                left_s = (await self._client.call(LEASE_TIME_TO_LIVE, request)).TTL
            except LeaseNotFoundError:
                left_s = -1
            if left_s < 0:
                dead = session
                break
        if not require:
            return Conflict(dead_session=dead)
        read = pb.TxnRequest()
        for requirement in require:
            read.success.add().request_range.key = self._keyspace.key(requirement.key)
        known_version = self._guard.check()
        response = await self._client.call(TXN, read)
        self._guard.observe(response.header, known_version)
        return Conflict(found_in(self._keyspace, require, response), dead)


def _too_late(commit_id: str) -> InvalidError:
    return InvalidError("commit id", commit_id, "at most an hour old: its writer's lease has ended")
