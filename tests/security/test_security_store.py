"""Users and ACLs in a store: changed by compare-and-swap, seen by everybody who watches."""

import asyncio

import pytest
from tests.support.waiting import async_until

from holdfast.agent.access_control import watching_access_control
from holdfast.contracts.validation import StoreLimits
from holdfast.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    canonical_host,
)
from holdfast.security.authorizer import Authorizer
from holdfast.security.principals import Principal
from holdfast.security.scram import ScramMechanism, credential_of
from holdfast.security.settings import SecuritySettings
from holdfast.security.store import SecurityStore, User
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom

ANN = Principal("ann")
ODD = "a/b,ü=% *"
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def read_acl(name: str, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(ResourcePattern(ResourceType.GROUP, name, pattern), ANN, Operation.READ)


def opened() -> tuple[MemoryStore, SecurityStore]:
    clock, random = RealClock(), SeededRandom(1)
    store = MemoryStore(clock=clock, random=random, limits=StoreLimits())
    return store, SecurityStore(store, clock=clock, random=random)


async def test_acls_are_listed_as_they_were_created() -> None:
    _, security = opened()
    wanted = [
        read_acl("g"),
        read_acl("g", PatternType.PREFIXED),
        read_acl(ODD),
        Acl(read_acl("g").resource, Principal(ODD), Operation.ALL, Permission.DENY, "10.0.0.1"),
    ]
    assert await security.create_acls(wanted) > 0
    assert await security.acls() == sorted(wanted)
    assert await security.create_acls(wanted) == 0, "they exist"
    assert await security.acls(AclFilter(principal=ANN, name=ODD)) == [read_acl(ODD)]


async def test_an_ipv6_address_is_one_host_in_each_of_its_forms() -> None:
    _, security = opened()
    forms = ["2001:db8::1", "2001:DB8:0:0:0:0:0:1", "2001:0db8::0001"]
    denied = [Acl(read_acl("g").resource, ANN, Operation.READ, Permission.DENY, each) for each in forms]
    await security.create_acls(denied)
    assert await security.acls() == denied[:1]
    decides = Authorizer([read_acl("g"), *await security.acls()])
    assert not decides.authorize(ANN, canonical_host(forms[1]), Operation.READ, ResourceType.GROUP, "g")
    assert canonical_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert (await security.delete_acls(AclFilter(host=forms[2])))[0] == denied[:1]


async def test_deleting_acls_says_which_they_were() -> None:
    store, security = opened()
    await security.create_acls([read_acl("a"), read_acl("b")])
    gone, version = await security.delete_acls(AclFilter(name="a"))
    assert (gone, version > 0) == ([read_acl("a")], True)
    assert await security.delete_acls(AclFilter(name="a")) == ([], 0)
    assert await security.acls() == [read_acl("b")]
    await security.delete_acls(AclFilter())
    assert (await store.scan("security/", "security0")).entries == ()


async def test_administrators_at_the_same_time_lose_nothing_of_each_others() -> None:
    _, security = opened()
    wanted = [Acl(read_acl("g").resource, Principal(f"u{n}"), Operation.READ) for n in range(20)]
    await asyncio.gather(*(security.create_acls([each]) for each in wanted))
    assert await security.acls() == sorted(wanted)


async def test_a_users_credentials_are_set_and_deleted_one_by_one() -> None:
    _, security = opened()
    first = credential_of(SHA_256, "secret", salt=b"salt", iterations=4_096)
    second = credential_of(SHA_512, "secret", salt=b"salt", iterations=4_096)
    await security.set_credentials(ODD, [first], create=True)
    with pytest.raises(InvalidError, match="not taken"):
        await security.set_credentials(ODD, [second], create=True)
    version = await security.set_credentials(ODD, [second])
    assert await security.users() == [User(ODD, (first, second), version)]
    assert await security.delete_credentials(ODD, [SHA_256])
    assert await security.delete_credentials(ODD, [SHA_256]) is None
    assert [each.credentials for each in await security.users()] == [(second,)]
    assert await security.delete_credentials(ODD)
    assert await security.delete_credentials(ODD) is None
    assert await security.users() == []


async def test_nobody_is_called_everybody() -> None:
    _, security = opened()
    with pytest.raises(InvalidError, match="means everybody"):
        await security.set_credentials("*", [])
    with pytest.raises(InvalidError, match="not everybody"):
        SecuritySettings(super_users="User:ann;User:*")
    assert SecuritySettings(super_users="User:ann").principals == {ANN}


async def test_no_password_is_in_the_store() -> None:
    store, security = opened()
    await security.set_credentials("ann", [credential_of(SHA_256, "geheim", salt=b"salt", iterations=4_096)])
    (entry,) = (await store.scan("security/", "security0")).entries
    assert b"geheim" not in entry.value


async def test_whoever_watches_decides_by_what_others_have_changed() -> None:
    store, security = opened()
    clock, random = RealClock(), SeededRandom(2)
    async with watching_access_control(store, super_users=[Principal("root")], clock=clock, random=random) as control:

        def may(who: Principal = ANN) -> bool:
            return control.authorizer.authorize(who, "h", Operation.READ, ResourceType.GROUP, "g")

        assert (may(), may(Principal("root")), control.user("ann")) == (False, True, None)
        before = control.version
        await security.create_acls([read_acl("g")])
        await async_until(may)
        assert control.version > before
        version = await security.set_credentials("ann", [credential_of(SHA_256, "x", salt=b"s", iterations=4_096)])
        await control.users_seen(version)
        assert control.user("ann") is not None
        _, version = await security.delete_acls(AclFilter())
        await control.acls_seen(version)
        assert not may()
