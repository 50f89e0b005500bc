"""Commits by one caller at a time: what they require, apply, answer and refuse."""

from typing import Final

import pytest

from holdfast.contracts.store import (
    Absent,
    AtVersion,
    Committed,
    Conflict,
    Delete,
    Entry,
    Operation,
    Put,
    Requirement,
    Store,
)
from holdfast.contracts.validation import StoreLimits
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import TOP, ContractSuite, put, text, write
from holdfast.vocabulary.errors import InvalidError

LIMITS: Final = StoreLimits()

# JSON that an engine with ideas of its own about JSON would change or choke on
VALUES: Final = (
    b"null",
    b"0",
    b"-0.0",
    b"1e400",
    b"123456789012345678901234567890",
    b' { "b" : 1,\n\t"a":2 , "b": 3 } ',
    b'"\\u0000 \\ud83d\\ude00 \\/"',
    '"Grüße, 世界 😀 \x7f"'.encode(),
    b'"\' $1 %s ? \\\\ :name {x} KEYS[1]"',
    b"[[[[]]]]",
)

REFUSED: Final[dict[str, tuple[tuple[Requirement, ...], tuple[Operation, ...]]]] = {
    "an empty key": ((), (Put("", b"1"),)),
    "a key that is too long": ((), (Put("k" * (LIMITS.key_bytes_max + 1), b"1"),)),
    "a key that is too long in UTF-8": ((), (Put("é" * (LIMITS.key_bytes_max // 2 + 1), b"1"),)),
    "a key with a control character": ((), (Put("refused/\x00", b"1"),)),
    "a key that UTF-8 cannot hold": ((), (Put("refused/\ud800", b"1"),)),
    "a deletion of such a key": ((), (Delete("refused/\n"),)),
    "a requirement on such a key": ((Absent("refused/\n"),), ()),
    "a required version below one": ((AtVersion("refused/0", 0),), (Put("refused/0", b"1"),)),
    "a key written twice": ((), (Put("refused/0", b"1"), Put("refused/0", b"2"))),
    "a key written and deleted": ((), (Put("refused/0", b"1"), Delete("refused/0"))),
    "too many operations": ((), tuple(Put(f"refused/{n}", b"1") for n in range(LIMITS.ops_max + 1))),
    "too many requirements and operations": (
        tuple(Absent(f"refused/{n}") for n in range(LIMITS.ops_max)),
        (Put("refused/0", b"1"),),
    ),
    "too many bytes": ((), (Put("refused/0", text("x" * LIMITS.bytes_max)),)),
    "an empty value": ((), (Put("refused/0", b""),)),
    "a value that is not JSON": ((), (Put("refused/0", b"{'a': 1}"),)),
    "a value with something after it": ((), (Put("refused/0", b"1 2"),)),
    "a value that is not UTF-8": ((), (Put("refused/0", b'"\xff"'),)),
    "one bad value among good ones": ((), (Put("refused/0", b"1"), Put("refused/1", b"nope"))),
}


class StoreCommits(ContractSuite):
    """A commit applies all or nothing, and returns which."""

    async def test_the_store_describes_itself(self, harness: StoreHarness, store: Store) -> None:
        facts = store.facts
        assert all((facts.engine, facts.server, facts.durability, facts.incarnation))
        async with harness.client() as other:
            assert other.facts.incarnation == facts.incarnation, "two clients of one store disagree about what it is"

    async def test_a_key_that_was_never_written_is_absent(self, store: Store) -> None:
        assert await store.get("never") is None

    @pytest.mark.parametrize("value", VALUES)
    async def test_a_value_is_read_back_byte_for_byte(self, store: Store, value: bytes) -> None:
        version = await write(store, Put("exact/1", value))
        entry = Entry("exact/1", value, version)
        assert await store.get("exact/1") == entry
        assert (await store.scan("exact/", "exact0")).entries == (entry,)

    async def test_every_client_reads_a_commit_as_soon_as_it_is_acknowledged(
        self, harness: StoreHarness, store: Store
    ) -> None:
        async with harness.client() as other:
            for n in range(30):
                writer, reader = (store, other) if n % 2 else (other, store)
                version = await put(writer, "mine", n)
                assert await reader.get("mine") == Entry("mine", text(n), version)
                assert (await reader.scan("mine", "mine" + TOP)).entries == (Entry("mine", text(n), version),)

    async def test_versions_grow_from_commit_to_commit_whoever_commits(
        self, harness: StoreHarness, store: Store
    ) -> None:
        async with harness.client() as second, harness.client() as third:
            versions = [await put(client, f"turn/{n}", n) for n in range(20) for client in (store, second, third)]
        assert versions == sorted(set(versions))
        assert versions[0] >= 1

    async def test_all_operations_of_a_commit_share_its_version(self, store: Store) -> None:
        await put(store, "set/old")
        version = await write(store, Put("set/b", b"1"), Delete("set/old"), Put("set/a", b"2"))
        assert (await store.scan("set/", "set0")).entries == (
            Entry("set/a", b"2", version),
            Entry("set/b", b"1", version),
        )

    async def test_a_commit_whose_requirements_hold_is_applied(self, store: Store) -> None:
        first = await put(store, "cas/at", "old")
        outcome = await store.commit(
            require=[AtVersion("cas/at", first), Absent("cas/none")],
            apply=[Put("cas/at", b'"new"'), Put("cas/x", b"1")],
        )
        assert isinstance(outcome, Committed)
        assert await store.get("cas/at") == Entry("cas/at", b'"new"', outcome.version)
        assert await store.get("cas/x") == Entry("cas/x", b"1", outcome.version)

    async def test_a_conflict_applies_nothing_and_returns_every_required_entry(self, store: Store) -> None:
        session = await store.open_session(30_000)
        held = Entry("cas/held", b'"ann"', await put(store, "cas/held", "ann", session=session.id), session.id)
        free = Entry("cas/free", b"1", await put(store, "cas/free", 1))
        before = await store.scan("cas/", "cas0")
        outcome = await store.commit(
            require=[AtVersion("cas/free", free.version), Absent("cas/held"), Absent("cas/gone")],
            apply=[Put("cas/free", b"2"), Put("cas/new", b"2"), Delete("cas/held")],
        )
        assert isinstance(outcome, Conflict)
        assert dict(outcome.found) == {"cas/free": free, "cas/held": held, "cas/gone": None}
        assert outcome.dead_session is None
        assert (await store.scan("cas/", "cas0")).entries == before.entries == (free, held)
        await store.close_session(session.id)

    async def test_a_required_version_must_be_the_latest(self, store: Store) -> None:
        old = await put(store, "cas/moved", 1)
        new = await put(store, "cas/moved", 1)
        for wrong in (old, new + 1):
            outcome = await store.commit(require=[AtVersion("cas/moved", wrong)], apply=[Put("cas/moved", b"9")])
            assert outcome == Conflict({"cas/moved": Entry("cas/moved", b"1", new)})
        outcome = await store.commit(require=[AtVersion("cas/moved", new)], apply=[Delete("cas/moved")])
        assert isinstance(outcome, Committed)
        assert await store.get("cas/moved") is None

    async def test_a_required_version_of_a_key_that_is_gone_conflicts(self, store: Store) -> None:
        version = await put(store, "cas/short")
        await write(store, Delete("cas/short"))
        outcome = await store.commit(require=[AtVersion("cas/short", version)], apply=[Put("cas/short", b"9")])
        assert outcome == Conflict({"cas/short": None})
        assert await store.get("cas/short") is None

    async def test_a_key_deleted_and_created_again_is_not_the_key_it_was(self, store: Store) -> None:
        first = await put(store, "aba", "same")
        deleted = await write(store, Delete("aba"))
        again = await put(store, "aba", "same")
        assert first < deleted < again
        outcome = await store.commit(require=[AtVersion("aba", first)], apply=[Put("aba", b"9")])
        assert outcome == Conflict({"aba": Entry("aba", b'"same"', again)})

    async def test_requirements_may_name_keys_that_the_commit_does_not_write(self, store: Store) -> None:
        epoch = await put(store, "epoch", 7)
        require = [AtVersion("epoch", epoch)]
        assert isinstance(await store.commit(require=require, apply=[Put("effect", b"1")]), Committed)
        await put(store, "epoch", 8)
        assert isinstance(await store.commit(require=require, apply=[Put("effect", b"2")]), Conflict)
        entry = await store.get("effect")
        assert entry is not None
        assert entry.value == b"1"

    async def test_a_commit_without_operations_checks_its_requirements_and_changes_nothing(self, store: Store) -> None:
        version = await put(store, "check/1", 1)
        checked = await store.commit(require=[AtVersion("check/1", version), Absent("check/2")])
        assert isinstance(checked, Committed)
        assert checked.version >= version
        refused = await store.commit(require=[AtVersion("check/1", version), Absent("check/1")])
        assert refused == Conflict({"check/1": Entry("check/1", b"1", version)})
        scan = await store.scan("check/", "check0")
        assert scan.entries == (Entry("check/1", b"1", version),)
        assert scan.version >= checked.version
        bare = await store.commit()
        assert isinstance(bare, Committed)
        assert bare.version >= version

    async def test_deleting_an_absent_key_succeeds_and_changes_nothing(self, store: Store) -> None:
        version = await put(store, "there", 1)
        outcome = await store.commit(require=[AtVersion("there", version)], apply=[Delete("not-there")])
        assert isinstance(outcome, Committed)
        assert outcome.version >= version
        assert await store.get("not-there") is None
        assert await store.get("there") == Entry("there", b"1", version)

    async def test_a_commit_at_the_limits_is_accepted(self, store: Store) -> None:
        require = [Absent(f"full/{n}") for n in range(LIMITS.ops_max // 2)]
        puts = [Put(f"full/{n}", b"1") for n in range(LIMITS.ops_max // 2)]
        assert isinstance(await store.commit(require=require, apply=puts), Committed)
        assert len((await store.scan("full/", "full0")).entries) == LIMITS.ops_max // 2

        longest = "é" * (LIMITS.key_bytes_max // 2)
        version = await put(store, longest, 1)
        assert await store.get(longest) == Entry(longest, b"1", version)

        heavy = text("x" * (LIMITS.bytes_max - len("heavy") - 2))
        version = await write(store, Put("heavy", heavy))
        assert await store.get("heavy") == Entry("heavy", heavy, version)

    @pytest.mark.parametrize("what", REFUSED)
    async def test_a_commit_beyond_the_limits_is_refused(self, store: Store, what: str) -> None:
        require, apply = REFUSED[what]
        with pytest.raises(InvalidError) as refused:
            await store.commit(require=require, apply=apply)
        assert all((refused.value.what, refused.value.allowed))
        assert (await store.scan("refused/", "refused0")).entries == ()
