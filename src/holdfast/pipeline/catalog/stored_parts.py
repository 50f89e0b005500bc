"""Encoding of pipelines, parts and revisions in the store, and the rules for names.

The one rule: a record that cannot be decoded is a `CorruptError`.
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
    """A saved part. `version` counts its saves."""

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
    revision: Revision = msgspec.field(name="recipe")


class PendingReplay(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Dead letters whose replay is under way: the next process to find it repeats exactly this."""

    revision: int = msgspec.field(name="recipe")
    generation: int
    topic: str
    partition: int
    offsets: tuple[int, ...]
    token: str
    pipeline: str = ""
    """Empty: begun by a release that did not record the pipeline in rows."""


class ReplayRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of the next replay step, which the fence compares, and the step under way."""

    number: int = 1
    pending: PendingReplay | None = None


def read_replay(entry: Entry) -> ReplayRecord:
    """Decode a replay."""
    return _decode(ReplayRecord, entry)


def _decode(kind: type[T], entry: Entry) -> T:
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None


def pipeline_of(entry: Entry) -> Pipeline:
    """Decode a pipeline."""
    return _decode(Pipeline, entry)


def pipelines_of(entries: Iterable[Entry]) -> Sequence[Pipeline]:
    """Decode pipelines, sorted by name."""
    return sorted(map(pipeline_of, entries), key=lambda pipeline: (pipeline.name.casefold(), pipeline.id))


def pipeline_value(pipeline: Pipeline) -> bytes:
    """Encode a pipeline. One that is too large for a commit is an `InvalidError`."""
    value = msgspec.json.encode(pipeline)
    if len(value) > RECORD_BYTES_MAX:
        allowed = f"at most {RECORD_BYTES_MAX} bytes: run fewer backfills at a time, or of fewer partitions"
        raise InvalidError(f"size of pipeline {pipeline.name!r}", f"{len(value)} bytes", allowed)
    return value


def part_of(entry: Entry) -> StoredPart | None:
    """Decode a part; None for one of a newer release."""
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
    """The operation that saves a part."""
    record = _PartRecord(part.version, part.updated_at_ms, msgspec.Raw(encode_part(part.value)))
    return Put(part_key(pipeline_id, part.name), msgspec.json.encode(record))


def revision_of(entry: Entry) -> Revision:
    """Decode a revision."""
    return _decode(_RevisionRecord, entry).revision


def revision_value(revision: Revision, now_ms: int) -> bytes:
    """Encode a revision."""
    return msgspec.json.encode(_RevisionRecord(now_ms, revision))


def validated_name(name: Any) -> str:
    """A valid pipeline name, normalized. `InvalidError`."""
    if not is_valid_name(name):
        allowed = f"1 to {NAME_BYTES_MAX} bytes of printable text, no space at either end"
        raise InvalidError("pipeline name", str(name)[:NAME_BYTES_MAX], allowed)
    return unicodedata.normalize("NFC", name)


def is_valid_name(name: Any) -> bool:
    """Whether a pipeline may have this name."""
    plain = unicodedata.normalize("NFC", name) if isinstance(name, str) else ""
    size = len(plain.encode("utf-8", "surrogatepass"))
    return 0 < size <= NAME_BYTES_MAX and plain.isprintable() and plain == plain.strip()


def validated_description(text: Any) -> str:
    """A valid description. `InvalidError`."""
    if not isinstance(text, str) or len(text) > DESCRIPTION_CHARS_MAX:
        raise InvalidError("pipeline description", str(text)[:100], f"at most {DESCRIPTION_CHARS_MAX} characters")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidError("pipeline description", ascii(text)[:100], "Unicode without lone surrogates")
    return text
