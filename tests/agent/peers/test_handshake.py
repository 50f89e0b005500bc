"""Who is let in, and as what."""

from dataclasses import replace

import msgspec
import pytest

from holdfast.agent.peers.frames import MalformedFrameError
from holdfast.agent.peers.handshake import (
    Hello,
    PeerIdentity,
    ProtocolVersions,
    Welcome,
    choose_version,
    decode_handshake,
    encode_handshake,
    mismatch_of,
    refusal_of,
    versions_of,
)
from holdfast.vocabulary.types import Member

US = PeerIdentity(cluster="c", agent="ann", wal_id="wal-ann")
BOB = Member(id="bob", session="s", wal_id="wal-bob", peer_address="h:1")
HELLO = Hello(version=3, oldest=2, cluster="c", agent="bob", wal_id="wal-bob")
SPOKEN = ProtocolVersions(2, 3)


def test_a_live_member_with_its_wal_is_let_in() -> None:
    assert refusal_of(HELLO, US, BOB, SPOKEN) is None


@pytest.mark.parametrize(
    ("changes", "member", "reason"),
    [
        ({"cluster": "other"}, BOB, "cluster 'other' is not this cluster"),
        ({}, None, "agent 'bob' is not a live member"),
        ({"wal_id": "wal-2"}, BOB, "agent 'bob' is not registered with WAL 'wal-2'"),
        ({"wal_id": ""}, replace(BOB, wal_id=""), "agent 'bob' is not registered with WAL ''"),
        ({"agent": "ann"}, BOB, "agent 'ann' is this agent"),
        ({"version": 1, "oldest": 1}, BOB, "versions 1 to 1 are not supported: 2 to 3 are"),
        ({"version": 5, "oldest": 4}, BOB, "versions 4 to 5 are not supported: 2 to 3 are"),
    ],
)
def test_everybody_else_is_refused_with_the_reason(
    changes: dict[str, object], member: Member | None, reason: str
) -> None:
    assert refusal_of(msgspec.structs.replace(HELLO, **changes), US, member, SPOKEN) == reason


@pytest.mark.parametrize(
    ("ours", "theirs", "chosen"),
    [
        (ProtocolVersions(1, 1), ProtocolVersions(1, 1), 1),
        (ProtocolVersions(1, 2), ProtocolVersions(1, 1), 1),
        (ProtocolVersions(2, 3), ProtocolVersions(1, 2), 2),
        (ProtocolVersions(2, 3), ProtocolVersions(3, 9), 3),
        (ProtocolVersions(2, 3), ProtocolVersions(1, 1), None),
        (ProtocolVersions(1, 1), ProtocolVersions(2, 3), None),
    ],
)
def test_the_newest_common_version_is_used(
    ours: ProtocolVersions, theirs: ProtocolVersions, chosen: int | None
) -> None:
    assert choose_version(ours, theirs) == choose_version(theirs, ours) == chosen


def test_a_hello_of_an_older_and_of_a_newer_format_is_read() -> None:
    older = b'{"version":1,"cluster":"c","agent":"bob","wal_id":"w"}'
    assert versions_of(decode_handshake(memoryview(older), Hello)) == ProtocolVersions(1, 1)
    newer = b'{"version":9,"oldest":8,"cluster":"c","agent":"bob","wal_id":"w","compression":["zstd"]}'
    assert versions_of(decode_handshake(memoryview(newer), Hello)) == ProtocolVersions(8, 9)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"version":"x"}', b"\xff\xfe"])
def test_what_is_no_hello_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedFrameError, match="hello"):
        decode_handshake(memoryview(body), Hello)


WELCOME = Welcome(
    version=2,
    cluster="c",
    agent="bob",
    wal_id="wal-bob",
    stream_credit_bytes=100,
    partition_credit_bytes=10,
    control_credit_bytes=10,
    frame_bytes_max=100,
)
MEANT = PeerIdentity(cluster="c", agent="bob", wal_id="wal-bob")


@pytest.mark.parametrize(
    ("changes", "mismatch"),
    [
        ({}, None),
        ({"agent": "eve"}, "agent 'eve' with WAL 'wal-bob' of cluster 'c' listens there"),
        ({"wal_id": "new"}, "agent 'bob' with WAL 'new' of cluster 'c' listens there"),
        ({"version": 4}, "version 4 was not offered"),
        ({"partition_credit_bytes": 0}, "it grants no credit"),
    ],
)
def test_the_connecting_end_checks_whom_it_has_reached(changes: dict[str, object], mismatch: str | None) -> None:
    welcome = decode_handshake(memoryview(encode_handshake(msgspec.structs.replace(WELCOME, **changes))), Welcome)
    assert mismatch_of(welcome, MEANT, SPOKEN) == mismatch
