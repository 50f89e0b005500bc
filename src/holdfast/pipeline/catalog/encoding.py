"""How pipelines, parts and recipes look in the store, and back; and what their names may be.

A record nobody could have written is a `CorruptError`.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from holdfast.contracts.store import Entry, Put
from holdfast.pipeline.catalog.keys import part_key
from holdfast.pipeline.catalog.parts import PARTS, Part, decode_part, encode_part
from holdfast.pipeline.model.definition import Pipeline, Revision
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.settings import KIB

NAME_BYTES_MAX: Final = 200
DESCRIPTION_CHARS_MAX: Final = 4_000
RECORD_BYTES_MAX: Final = 100 * KIB
REVISION_BYTES_MAX: Final = 200 * KIB

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part as it was saved. `version` counts the saves of this part."""

    name: str
    value: Part
    version: int
    updated_at_ms: int


class _PartRecord(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    updated_at_ms: int
    value: msgspec.Raw


class _RevisionRecord(msgspec.Struct, frozen=True, rename="camel"):
    created_at_ms: int
    recipe: Revision


class PendingReplay(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Rows of the DLQ somebody is about to replay, or replayed without saying so: whoever comes next does exactly this again."""

    recipe: int
    generation: int
    topic: str
    partition: int
    offsets: tuple[int, ...]
    token: str


class ReplayRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many steps of replays there have been, and the one under way. The number is what the fence compares."""

    number: int = 1
    pending: PendingReplay | None = None


def read_replay(entry: Entry) -> ReplayRecord:
    """The replay an entry speaks of."""
    return _decode(ReplayRecord, entry)


def _decode(kind: type[T], entry: Entry) -> T:
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None


def pipeline_of(entry: Entry) -> Pipeline:
    """The pipeline an entry describes."""
    return _decode(Pipeline, entry)


def pipelines_of(entries: Iterable[Entry]) -> Sequence[Pipeline]:
    """Pipelines in the order in which people are shown them."""
    return sorted(map(pipeline_of, entries), key=lambda pipeline: (pipeline.name.casefold(), pipeline.id))


def pipeline_value(pipeline: Pipeline) -> bytes:
    """A pipeline's record. One that has grown beyond what a commit takes is an `InvalidError`."""
    value = msgspec.json.encode(pipeline)
    if len(value) > RECORD_BYTES_MAX:
        allowed = f"at most {RECORD_BYTES_MAX}: fewer backfills at a time, or of fewer partitions each"
        raise InvalidError(f"record of pipeline {pipeline.name!r}", f"{len(value)} bytes", allowed)
    return value


def part_of(entry: Entry) -> StoredPart | None:
    """The part an entry holds; None for one that only a newer release knows."""
    name = entry.key.rpartition("/")[2]
    if name not in PARTS:
        return None
    record = _decode(_PartRecord, entry)
    try:
        value = decode_part(name, record.value)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None
    return StoredPart(name, value, record.version, record.updated_at_ms)


def part_put(pipeline_id: str, part: StoredPart) -> Put:
    """What saves a part."""
    record = _PartRecord(part.version, part.updated_at_ms, msgspec.Raw(encode_part(part.value)))
    return Put(part_key(pipeline_id, part.name), msgspec.json.encode(record))


def revision_of(entry: Entry) -> Revision:
    """The recipe an entry holds."""
    return _decode(_RevisionRecord, entry).recipe


def revision_value(recipe: Revision, now_ms: int) -> bytes:
    """A recipe's record."""
    return msgspec.json.encode(_RevisionRecord(now_ms, recipe))


def validated_name(name: Any) -> str:
    """A name a pipeline may have. `InvalidError`."""
    if not is_valid_name(name):
        allowed = f"1 to {NAME_BYTES_MAX} bytes of printable text, no space at either end"
        raise InvalidError("name of a pipeline", str(name)[:NAME_BYTES_MAX], allowed)
    return unicodedata.normalize("NFC", name)


def is_valid_name(name: Any) -> bool:
    """Whether a pipeline may be called so."""
    plain = unicodedata.normalize("NFC", name) if isinstance(name, str) else ""
    size = len(plain.encode("utf-8", "surrogatepass"))
    return 0 < size <= NAME_BYTES_MAX and plain.isprintable() and plain == plain.strip()


def validated_description(text: Any) -> str:
    """A description a pipeline may have. `InvalidError`."""
    if not isinstance(text, str) or len(text) > DESCRIPTION_CHARS_MAX:
        raise InvalidError("description of a pipeline", str(text)[:100], f"at most {DESCRIPTION_CHARS_MAX} characters")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidError("description of a pipeline", ascii(text)[:100], "text that UTF-8 can hold")
    return text
