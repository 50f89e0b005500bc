"""`holdfast user` and `holdfast acl` on a store, without a server."""

import asyncio
from pathlib import Path

import pytest
from tests.support.command_line import Run

from holdfast.security.scram import ScramMechanism, is_password
from holdfast.security.store import SecurityStore, User
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


@pytest.fixture
def at(tmp_path: Path) -> tuple[str, str]:
    """The flags that name a store that exists."""
    asyncio.run(users(f"sqlite:///{tmp_path}/store.db", create=True))
    return "--store", f"sqlite:///{tmp_path}/store.db"


async def users(url: str, *, create: bool = False) -> list[User]:
    clock, random = RealClock(), SystemRandom()
    async with open_store(url, clock=clock, random=random, create=create) as store:
        return await SecurityStore(store, clock=clock, random=random).users()


def stored(at: tuple[str, str]) -> dict[str, User]:
    return {user.name: user for user in asyncio.run(users(at[1]))}


def test_a_password_is_shown_once_or_read(run: Run, at: tuple[str, str]) -> None:
    (made,) = run("user", "create", "ann", *at, "--json").rows
    assert made["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert all(is_password(each, made["password"]) for each in stored(at)["ann"].credentials)
    done = run("user", "create", "bob", "--password-stdin", "--mechanism", "SCRAM-SHA-512", *at, stdin=b"of bob\n")
    assert done.text == "user bob can log in with SCRAM-SHA-512\n"
    (credential,) = stored(at)["bob"].credentials
    assert (credential.mechanism, is_password(credential, "of bob")) == (ScramMechanism.SHA_512, True)
    listed = run("user", "list", *at)
    assert "ann" in listed.text
    assert made["password"] not in listed.text
    salts = {each.salt for user in stored(at).values() for each in user.credentials}
    assert len(salts) == 3


def test_an_existing_user_is_changed_only_on_request(run: Run, at: tuple[str, str]) -> None:
    run("user", "create", "ann", "--password-stdin", *at, stdin=b"first\n")
    refused = run("user", "create", "ann", "--password-stdin", *at, stdin=b"second\n")
    assert (refused.code, "not taken" in refused.err) == (2, True)
    assert run("user", "create", "ann", "--change", "--password-stdin", *at, stdin=b"second\n").code == 0
    assert all(is_password(each, "second") for each in stored(at)["ann"].credentials)


def test_a_user_is_deleted_after_a_confirmation(run: Run, at: tuple[str, str]) -> None:
    run("user", "create", "ann", *at)
    refused = run("user", "delete", "ann", *at)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert run("user", "delete", "ann", "--yes", *at).text == "user ann deleted\n"
    assert run("user", "delete", "ann", "--yes", *at).code == 2
    assert run("user", "list", *at, "--json").rows == []


@pytest.mark.parametrize(
    ("argv", "stdin", "says"),
    [
        (("create", ""), b"", "user name"),
        (("create", "ann", "--password-stdin"), b"", "on stdin"),
        (("create", "ann", "--iterations", "1"), b"", "iterations"),
        (("create", "ann", "--mechanism", "MD5"), b"", "SCRAM-SHA-256"),
    ],
)
def test_what_cannot_be_a_user_is_refused(
    run: Run, at: tuple[str, str], argv: tuple[str, ...], stdin: bytes, says: str
) -> None:
    done = run("user", *argv, *at, stdin=stdin)
    assert (done.code, says in done.err) == (2, True), done.err
    assert stored(at) == {}


def test_acls_are_created_listed_and_deleted(run: Run, at: tuple[str, str]) -> None:
    run("acl", "create", "--allow", "User:ann", "--operation", "read,write", "--topic-prefix", "orders-", *at)
    run("acl", "create", "--deny", "User:*", "--operation", "delete", "--topic", "audit", "--host", "10.0.0.1", *at)
    run("acl", "create", "--allow", "User:ann", "--operation", "alter", "--cluster", *at)
    run("acl", "create", "--allow", "User:ann", "--operation", "read", "--consumer-group", "*", *at)
    assert [
        (
            row["principal"],
            row["permission"],
            row["operation"],
            row["resource"],
            row["name"],
            row["pattern"],
            row["host"],
        )
        for row in run("acl", "list", *at, "--json").rows
    ] == [
        ("User:ann", "allow", "alter", "cluster", "kafka-cluster", "literal", "*"),
        ("User:ann", "allow", "read", "group", "*", "literal", "*"),
        ("User:*", "deny", "delete", "topic", "audit", "literal", "10.0.0.1"),
        ("User:ann", "allow", "read", "topic", "orders-", "prefixed", "*"),
        ("User:ann", "allow", "write", "topic", "orders-", "prefixed", "*"),
    ]
    assert len(run("acl", "list", "--principal", "User:ann", "--operation", "read", *at, "--json").rows) == 2
    assert run("acl", "delete", "--topic-prefix", "orders-", *at).code == 2, "not without a confirmation"
    deleted = run("acl", "delete", "--topic-prefix", "orders-", "--yes", *at, "--json").rows
    assert [row["operation"] for row in deleted] == ["read", "write"]
    assert run("acl", "delete", "--topic-prefix", "orders-", "--yes", *at).text == "no ACL matches\n"
    assert len(run("acl", "list", *at, "--json").rows) == 3


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "name --allow or --deny"),
        (("--allow", "ann", "--operation", "read", "--topic", "t"), "User:NAME"),
        (("--allow", "User:ann", "--operation", "eat", "--topic", "t"), "one of all, read"),
        (("--allow", "User:ann", "--operation", "read", "--topic", "t", "--cluster"), "operation on a cluster"),
        (("--allow", "User:ann", "--operation", "read"), "a resource such as --topic"),
    ],
)
def test_what_cannot_be_an_acl_is_refused_as_a_whole(
    run: Run, at: tuple[str, str], argv: tuple[str, ...], says: str
) -> None:
    done = run("acl", "create", *argv, *at)
    assert (done.code, says in done.err) == (2, True), done.err
    assert run("acl", "list", *at, "--json").rows == []


def test_keys_are_created_listed_and_revoked(run: Run, at: tuple[str, str]) -> None:
    (made,) = run("key", "create", "report", "--scopes", "read", "--expires", "90d", *at, "--json").rows
    assert made["secret"].startswith(f"hf_{made['prefix']}_")
    assert (made["principal"], made["scopes"]) == ("User:report", ["read"])
    assert made["expires_at_ms"] - made["created_at_ms"] == pytest.approx(90 * 86_400_000, abs=60_000)
    shown = run("key", "create", "ingest", "--principal", "User:ann", *at).text
    assert "acts for User:ann, to read, write" in shown
    assert "cannot be shown again" in shown
    listed = run("key", "list", *at, "--json").rows
    assert [row["name"] for row in listed] == ["report", "ingest"]
    assert made["secret"] not in str(listed)
    assert "argon2" not in str(listed)
    assert run("key", "revoke", made["prefix"], *at).code == 2, "not without a confirmation"
    assert run("key", "revoke", made["prefix"], "--yes", *at, "--json").rows == [
        {"prefix": made["prefix"], "revoked": True}
    ]
    assert run("key", "revoke", made["prefix"], "--yes", *at).code == 2
    assert [row["name"] for row in run("key", "list", *at, "--json").rows] == ["ingest"]


@pytest.mark.parametrize("argv", [("--scopes", "root"), ("--expires", "soon"), ("--principal", "ann")])
def test_what_cannot_be_a_key_is_refused(run: Run, at: tuple[str, str], argv: tuple[str, ...]) -> None:
    assert run("key", "create", "x", *argv, *at).code == 2
    assert run("key", "list", *at, "--json").rows == []


def test_quotas_are_set_listed_and_removed(run: Run, at: tuple[str, str]) -> None:
    (made,) = run("quota", "set", "--user", "ann", "--produce", "1000000", "--request", "50", *at, "--json").rows
    assert made == {
        "user": "ann",
        "client_id": None,
        "ip": None,
        "producer_byte_rate": 1_000_000,
        "consumer_byte_rate": None,
        "request_percentage": 50,
        "connection_creation_rate": None,
    }
    run("quota", "set", "--user-default", "--client-id", "app", "--consume", "2000", *at)
    assert "(default)" in run("quota", "list", *at).text
    rows = run("quota", "list", *at, "--json").rows
    assert [(row["user"], row["client_id"]) for row in rows] == [("", "app"), ("ann", None)]
    run("quota", "remove", "--user", "ann", "--request", "--yes", *at)
    assert run("quota", "list", *at, "--json").rows[1]["request_percentage"] is None
    assert run("quota", "remove", "--user", "ann", "--yes", *at).text == "quotas of user ann removed\n"
    assert len(run("quota", "list", *at, "--json").rows) == 1


def test_quotas_of_addresses_are_set_listed_and_removed(run: Run, at: tuple[str, str]) -> None:
    (made,) = run("quota", "set", "--ip", "2001:DB8:0::1", "--connections", "5", *at, "--json").rows
    assert (made["ip"], made["user"], made["connection_creation_rate"]) == ("2001:db8::1", None, 5)
    run("quota", "set", "--ip-default", "--connections", "20", *at)
    rows = run("quota", "list", *at, "--json").rows
    assert sorted((row["ip"], row["connection_creation_rate"]) for row in rows) == [("", 20), ("2001:db8::1", 5)]
    assert run("quota", "remove", "--ip-default", "--yes", *at).text == "quotas of ip (default) removed\n"
    run("quota", "remove", "--ip", "2001:db8::1", "--connections", "--yes", *at)
    assert run("quota", "list", *at, "--json").rows == []


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("set", "--produce", "1"), "whose quota"),
        (("set", "--user", "ann"), "nothing to set"),
        (("set", "--user", "", "--produce", "1"), "an empty name"),
        (("set", "--user", "ann", "--produce", "0"), "--produce"),
        (("set", "--user", "ann", "--produce", "1.5"), "whole number"),
        (("set", "--ip", "localhost", "--connections", "1"), "an IP address"),
        (("set", "--ip", "10.0.0.1", "--produce", "1"), "one of connection_creation_rate"),
        (("set", "--user", "ann", "--ip-default", "--connections", "1"), "not combined"),
        (("set", "--user", "ann", "--connections", "1"), "one of producer_byte_rate"),
        (("set", "--ip", "", "--connections", "1"), "an empty name"),
        (("remove", "--user", "nobody", "--yes"), "one that has such a quota"),
        (("remove", "--user", "ann"), "--yes"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(run: Run, at: tuple[str, str], argv: tuple[str, ...], why: str) -> None:
    refused = run("quota", *argv, *at)
    assert (refused.code, why in refused.err) == (2, True), refused.err
