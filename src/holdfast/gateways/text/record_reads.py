"""Records of a partition from an offset on: from the log of this node, or from that of another."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.cursors.cursor import CursorRecord
from holdfast.gateways.text.errors import raise_remote
from holdfast.gateways.text.node_connections import NodeConnection
from holdfast.gateways.text.records import decode_records, encode_records
from holdfast.log.batches import decode, parse_header
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.reader import FetchedBatches
from holdfast.log.service import LogService
from holdfast.vocabulary.errors import UnavailableError


class ReadRecords(NamedTuple):
    """Records, the offset after them, and where the partition began and ended when they were read."""

    records: Sequence[CursorRecord]
    next_offset: int
    start_offset: int
    end_offset: int

    @classmethod
    def of(cls, fetched: FetchedBatches, offset: int) -> "ReadRecords":
        """The records in whole batches from `offset` on. A null value is an empty one."""
        records = [
            CursorRecord(record.offset, record.value or b"")
            for batch in fetched.batches
            for record in decode(batch)
            if record.offset >= offset
        ]
        following = parse_header(fetched.batches[-1]).last_offset + 1 if fetched.batches else offset
        return cls(records, max(following, offset), fetched.start_offset, fetched.high_watermark)

    def encode(self) -> bytes:
        """As one node sends it to another."""
        return b"OK %d %d %d " % self[1:] + encode_records(self.records)


async def read_records(log: LogService, topic: str, partition: int, offset: int, bytes_max: int) -> ReadRecords:
    """Records of a partition that is led here; outside its bounds there are none, which the answer shows."""
    try:
        return ReadRecords.of(await log.fetch(topic, partition, offset, bytes_max=bytes_max), offset)
    except OffsetOutOfRangeError as error:
        return ReadRecords((), offset, error.start, error.end)


async def published_records(
    log: LogService, topic: str, partition: int, offset: int, bytes_max: int
) -> ReadRecords | None:
    """Records of a partition that another node leads, from object storage; None: `offset` is not published."""
    try:
        found = await log.fetch_published(topic, partition, offset, bytes_max=bytes_max)
    except OffsetOutOfRangeError as error:
        return ReadRecords((), offset, error.start, error.end)
    return None if found is None else ReadRecords.of(found, offset)


async def remote_records(
    connection: NodeConnection, topic: str, partition: int, offset: int, bytes_max: int
) -> ReadRecords:
    """The same from another node. Raises what that node would."""
    reply = await connection.ask(f"READ {topic} {partition} {offset} {bytes_max}".encode())
    raise_remote(reply, topic, partition)
    words = reply.split(b" ", 4)
    try:
        following, start, end = (int(word) for word in words[1:4])
        return ReadRecords(decode_records(words[4]), following, start, end)
    except (ValueError, IndexError):
        raise UnavailableError(f"node at {connection.address}", "its answer is no list of records") from None
