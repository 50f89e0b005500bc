"""Commits: sends them, and finds out what became of those whose answers were lost.

The one rule: an answer is given only when it is known. See `slots` for how, `transactions` for what is sent.
"""

from collections.abc import Sequence

from holdfast.contracts.store import Committed, Conflict, NotCommitted, Operation, Put, Requirement
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.commit_slots import CommitId, CommitSlot, CommitSlots
from holdfast.stores.etcd.errors import EtcdAnswerLostError, LeaseNotFoundError
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
        self, client: EtcdClient, slots: CommitSlots, sentinel: IdentityGuard, keyspace: Keyspace, mark: bytes
    ) -> None:
        self._client, self._slots, self._sentinel, self._keyspace = client, slots, sentinel, keyspace
        self._mark = mark

    async def commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        """As in the contract, with something to apply."""
        while True:
            slot = await self._slots.take()
            try:
                outcome = await self._send(slot, require, apply)
            except LeaseNotFoundError:
                # Either a session is dead or this writer is; in the second case nothing was done and a new writer may try.
                if await self._slots.check(slot.writer):
                    return await self._dead_session(require, apply)
            else:
                if outcome is not None:
                    return outcome

    async def check(self, require: Sequence[Requirement]) -> Committed | Conflict:
        """A commit with nothing to apply: a consistent look at what is required."""
        question = check_request(self._keyspace, require)
        # The read makes the transaction linearizable: one without any is answered from a member's own state.
        question.success.add().request_range.key = self._keyspace.incarnation
        asked_at = self._sentinel.check()
        answer = await self._client.ask(TXN, question)
        self._sentinel.saw(answer.header, asked_at)
        if not answer.succeeded:
            return Conflict(found_in(self._keyspace, require, answer))
        self._sentinel.saw_mark(answer.header.revision, pair_in(answer.responses[0]), asked_at)
        return Committed(answer.header.revision)

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        """As in the contract."""
        asked = CommitId.parse(commit_id)
        question = refuse_request(self._keyspace.slot(asked.lease, asked.number), asked.at, asked.lease)
        asked_at = self._sentinel.check()
        try:
            answer = await self._client.ask(TXN, question)  # repeating it is harmless: it finds its own mark
        except LeaseNotFoundError:
            raise _too_late(commit_id) from None
        self._sentinel.saw(answer.header, asked_at)
        if answer.succeeded:
            return NotCommitted()
        pair = pair_in(answer.responses[0])
        if pair is None:
            raise _too_late(commit_id)
        return Committed(pair.mod_revision) if pair.value == b"%d" % asked.sequence else NotCommitted()

    async def _send(
        self, slot: CommitSlot, require: Sequence[Requirement], apply: Sequence[Operation]
    ) -> Committed | Conflict | None:
        """Send a commit and see to its slot, whatever happens. None: slot or store were not as we left them; try again."""
        reusable = False  # a cancelled commit, too, has an unknown outcome
        try:
            question = commit_request(self._keyspace, require, apply, slot, self._mark)
            asked_at = self._sentinel.check()
            answer = await self._client.ask(TXN, question, repeatable=False)
            if answer.succeeded:
                slot.at, reusable = answer.header.revision, True
                self._sentinel.saw(answer.header, asked_at)
                return Committed(answer.header.revision)
            self._sentinel.saw(answer.header, asked_at)
            found = found_in(self._keyspace, require, answer)
            if is_lost_race(require, found):
                reusable = True
                return Conflict(found)
        except EtcdAnswerLostError as lost:
            raise OutcomeUnknownError(slot.commit_id, str(lost)) from None
        except HoldfastError:
            reusable = True  # refused, or never sent
            raise
        finally:
            if reusable:
                self._slots.give_back(slot)
            else:
                self._slots.retire(slot)
        await self._sentinel.look()  # what was required held, so keys of ours are gone: perhaps all of them
        return None

    async def _dead_session(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Conflict:
        sessions = dict.fromkeys(each.session for each in apply if type(each) is Put and each.session is not None)
        dead = next(iter(sessions))
        for session in sessions:
            question = pb.LeaseTimeToLiveRequest(ID=lease_of(session))
            try:
                left_s = (await self._client.ask(LEASE_TIME_TO_LIVE, question)).TTL
            except LeaseNotFoundError:
                left_s = -1
            if left_s < 0:
                dead = session
                break
        if not require:
            return Conflict(dead_session=dead)
        look = pb.TxnRequest()
        for requirement in require:
            look.success.add().request_range.key = self._keyspace.key(requirement.key)
        asked_at = self._sentinel.check()
        answer = await self._client.ask(TXN, look)
        self._sentinel.saw(answer.header, asked_at)
        return Conflict(found_in(self._keyspace, require, answer), dead)


def _too_late(commit_id: str) -> InvalidError:
    return InvalidError("commit id", commit_id, "one asked about within an hour: its writer's lease has ended since")
