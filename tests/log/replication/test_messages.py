"""The bytes of replication messages: what is sent is what arrives, and nothing else is taken for a message."""

from contextlib import suppress

import pytest

from holdfast.log.replication.messages import (
    Ack,
    Announce,
    Append,
    Base,
    Message,
    Mismatch,
    ReadTail,
    Reject,
    Seal,
    Sealed,
    TailEntries,
    WrongWal,
    decode,
    encode,
    encode_parts,
)
from holdfast.log.replication.positions import NOWHERE, Position, ReplicaEntry, epoch_start
from holdfast.log.segments.model import EpochStart
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom

P = (bytes(range(16)), 7)
ENTRIES = (epoch_start(3, 5), ReplicaEntry(3, 5, 2, (b"batch", b"es")), ReplicaEntry(3, 7, 1, (bytes(300),)))
EPOCHS = (EpochStart(1, 0), EpochStart(3, 5))
MESSAGES: tuple[Message, ...] = (
    Append(partition=P, epoch=3, previous=Position(2, 5), entries=ENTRIES, hw=5, published=NOWHERE),
    Append(partition=P, epoch=3, previous=NOWHERE, hw=0, published=NOWHERE),
    Append(partition=P, epoch=3, previous=Position(2, 5), entries=ENTRIES[1:2], hw=5, published=Position(1, 4)),
    Seal(partition=P, epoch=4, wal_id="Wäl"),
    ReadTail(partition=P, epoch=4, start=Position(1, 2), bytes_max=1 << 40),
    Base(partition=P, epoch=4, published=Position(2**62, 2**62)),
    Announce(partition=P, epoch=4, hw=9, published=Position(1, 2)),
    Ack(partition=P, epoch=4, matched=Position(4, 9)),
    Reject(partition=P, epoch=4, promised=5),
    Mismatch(partition=P, epoch=4, base=NOWHERE, position=Position(3, 9), epochs=EPOCHS),
    Sealed(partition=P, epoch=4, base=Position(1, 2), position=Position(3, 9), epochs=()),
    WrongWal(partition=P, epoch=4, wal_id="w2"),
    TailEntries(partition=P, epoch=4, previous=Position(1, 5), entries=ENTRIES, position=Position(3, 8)),
)


def joined(message: Message) -> Message:
    """The message with each payload in one piece and without checksums, for comparison."""
    if not isinstance(message, (Append, TailEntries)):
        return message
    entries = tuple(ReplicaEntry(*each[:3], (b"".join(each.payload),)) for each in message.entries)
    fields = {name: getattr(message, name) for name in message.__struct_fields__ if name != "entries"}
    return type(message)(entries=entries, **fields)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert joined(decode(encode(message))) == joined(message)
    assert joined(decode(bytearray(encode(message)))) == joined(message)


def test_the_bytes_of_frequent_messages_are_those_of_earlier_releases() -> None:
    head = bytes.fromhex("000102030405060708090a0b0c0d0e0f 00000007")
    one = bytes.fromhex(
        "0000000000000003 0000000000000002 0000000000000005 0000000000000005 0000000000000001 0000000000000004"
        "00000001 0000000000000003 0000000000000005 00000002 00000007 b4276dd6"
    )
    assert encode(MESSAGES[2]) == b"\1\1" + head + one + b"batches"
    ack = bytes.fromhex("0000000000000004 0000000000000004 0000000000000009")
    assert encode(Ack(partition=P, epoch=4, matched=Position(4, 9))) == b"\1\x10" + head + ack


def test_payloads_are_neither_copied_on_the_way_out_nor_in() -> None:
    payload = bytes(100_000)
    message = TailEntries(
        partition=P, epoch=1, previous=NOWHERE, entries=(ReplicaEntry(1, 0, 1, (payload,)),), position=Position(1, 1)
    )
    assert any(part is payload for part in encode_parts(message))
    arrived = decode(encode(message))
    assert isinstance(arrived, TailEntries)
    assert isinstance(arrived.entries[0].payload[0], memoryview)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_what_is_cut_off_or_has_more_is_refused(message: Message) -> None:
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(InvalidError):
            decode(data[:end])
    with pytest.raises(InvalidError, match="bytes behind its end"):
        decode(data + b"\0")


def test_another_version_an_unknown_kind_and_a_damaged_entry_are_refused() -> None:
    data = bytearray(encode(MESSAGES[0]))
    with pytest.raises(InvalidError, match="version of a replication message 2"):
        decode(b"\2" + data[1:])
    with pytest.raises(InvalidError, match="kind of replication message 99"):
        decode(data[:1] + b"\x63" + data[2:])
    data[-1] ^= 1
    with pytest.raises(InvalidError, match="epoch 3, offset 7: its checksum"):
        decode(data)


@pytest.mark.parametrize(
    "message",
    [
        Seal(partition=P, epoch=2**63, wal_id="w2"),
        Announce(partition=P, epoch=4, hw=2**63, published=NOWHERE),
        Base(partition=P, epoch=4, published=Position(2**63, 1)),
        Ack(partition=P, epoch=4, matched=Position(4, 2**64 - 1)),
        Sealed(partition=P, epoch=4, base=NOWHERE, position=Position(3, 9), epochs=(EpochStart(1, 2**63),)),
        *(
            Append(partition=P, epoch=4, previous=NOWHERE, entries=(each,), hw=0, published=NOWHERE)
            for each in (ReplicaEntry(2**63, 0, 1), ReplicaEntry(3, 2**63 - 1, 0), ReplicaEntry(3, 2**63 - 2, 1))
        ),
    ],
)
def test_numbers_that_no_wal_takes_are_refused(message: Message) -> None:
    """A replica would decide on them, and then fail to write what it has decided."""
    with pytest.raises(InvalidError, match="at most 9223372036854775807"):
        decode(encode(message))


def test_no_damage_makes_anything_but_a_message_or_a_refusal() -> None:
    chance = SeededRandom(13).random
    for _ in range(3_000):
        data = bytearray(encode(chance.choice(MESSAGES)))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(InvalidError):
            decode(data)
