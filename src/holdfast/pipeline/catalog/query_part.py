"""The part `query` as users send it: validated, and completed with names and defaults. Spark checks the rest, on a worker.

The one rule: the text of a Python file is parsed here and never run.
"""

import ast
import re
from typing import Any, Final

import msgspec

from holdfast.log.topics import check_name as check_topic_name
from holdfast.pipeline.catalog.source_format import check_format
from holdfast.pipeline.formats.stream_values import decoder_config
from holdfast.pipeline.model.errors import Mistakes
from holdfast.pipeline.model.query import FAST, STREAMING, QueryConfig, StreamSource
from holdfast.pipeline.model.shapes import read_struct
from holdfast.pipeline.model.stored import EARLIEST, LATEST
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between

SOURCES_MAX: Final = 16
TEXT_CHARS_MAX: Final = 100_000
PYTHON_ENTRY: Final = "def pipeline(spark, sources)"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SCHEMA: Final = re.compile(r"source\.schema\b(?!R)")
_DELAY: Final = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")


def read_query(given: dict[str, Any]) -> QueryConfig:
    """A query. All mistakes at once."""
    mistakes = Mistakes()
    config = read_struct("query", given, QueryConfig, mistakes)
    sources = tuple(_source(f"query.sources[{at}]", each, mistakes) for at, each in enumerate(config.sources))
    config = msgspec.structs.replace(config, sources=sources, sql=config.sql.strip().rstrip(";").rstrip())
    names = [each.name.lower() for each in sources]  # Spark does not distinguish case in names of views
    for at, name in enumerate(names):
        if name in names[:at]:
            mistakes.add(InvalidError(f"query.sources[{at}].name", sources[at].name, "unique"))
    _check_dead_letters(sources, mistakes)
    for name, value, least, most in (
        ("rowsPerBatchMax", config.rows_per_batch_max, 1, 100_000_000),
        ("shufflePartitions", config.shuffle_partitions, 0, 10_000),
    ):
        with mistakes.collect():
            check_between(f"query.{name}", value, least, most)
    _check_texts(config, mistakes)
    _check_engine(config, mistakes)
    mistakes.raise_if_any()
    return config


def _source(where: str, given: StreamSource, mistakes: Mistakes) -> StreamSource:
    try:
        check_topic_name(given.topic)
    except InvalidError as error:
        mistakes.add(InvalidError(f"{where}.topic", given.topic[:200], error.allowed))
    name = given.name or re.sub(r"[^A-Za-z0-9_]", "_", given.topic)
    if _NAME.fullmatch(name) is None:
        allowed = "letters, digits and _, beginning with no digit"
        mistakes.add(InvalidError(f"{where}.name", name[:100], allowed))
    if given.start not in (EARLIEST, LATEST) and parse_iso_ns(given.start) is None:
        allowed = f"{EARLIEST}, {LATEST}, or an ISO 8601 time such as 2026-11-15T08:30:00Z"
        mistakes.add(InvalidError(f"{where}.start", given.start[:100], allowed))
    if _DELAY.fullmatch(given.watermark.delay) is None:
        allowed = "a number and a unit such as 10 minutes, 30 seconds or 1 hour"
        mistakes.add(InvalidError(f"{where}.watermark.delay", given.watermark.delay[:100], allowed))
    _check_format(where, given, mistakes)
    return msgspec.structs.replace(given, name=name)


def _check_format(where: str, given: StreamSource, mistakes: Mistakes) -> None:
    """As of a mapped source, whose part `schema` is a source's `valueSchema` here."""
    found = Mistakes()
    check_format(decoder_config(given), found)
    for error in found.errors:
        error.what = _SCHEMA.sub("source.valueSchema", error.what).replace("source.", f"{where}.", 1)
        mistakes.add(error)
    if not given.schema and decoder_config(given) != decoder_config(StreamSource(topic=given.topic)):
        mistakes.add(
            InvalidError(f"{where}.schema", "", f"the fields of the values: {given.format} is decoded to them")
        )


def _check_dead_letters(sources: tuple[StreamSource, ...], mistakes: Mistakes) -> None:
    topics = [each.topic if each.has_dead_letters else "" for each in sources]
    for at, topic in enumerate(topics):
        if topic and topic in topics[:at]:
            allowed = "null for all sources of one topic but one: a record is a dead letter once"
            mistakes.add(InvalidError(f"query.sources[{at}].badRecords", "dlq", allowed))


def _check_texts(config: QueryConfig, mistakes: Mistakes) -> None:
    for name, text in (("sql", config.sql), ("python", config.python)):
        if len(text) > TEXT_CHARS_MAX:
            allowed = f"at most {TEXT_CHARS_MAX} characters"
            mistakes.add(InvalidError(f"query.{name}", f"{len(text)} characters", allowed))
    if config.sql and config.python:
        mistakes.add(InvalidError("query.python", "a Python file", "absent beside sql: a query is one of the two"))
    if config.python:
        with mistakes.collect():
            _check_python(config.python)


def _check_python(text: str) -> None:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        shown = f"line {line}" if line else "the file"
        raise InvalidError("query.python", shown, f"valid Python ({error})") from None
    entries = [each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == "pipeline"]
    if not entries or len(entries[-1].args.args) != 2:
        raise InvalidError("query.python", "the file", f"one that has {PYTHON_ENTRY} -> DataFrame")


def _check_engine(config: QueryConfig, mistakes: Mistakes) -> None:
    has_query = bool(config.sql or config.python)
    if config.engine == FAST and (has_query or config.sources):
        allowed = "auto or structured-streaming for a query: the fast path maps records one by one"
        mistakes.add(InvalidError("query.engine", FAST, allowed))
    elif has_query or config.sources or config.engine == STREAMING:
        if not has_query:
            mistakes.add(InvalidError("query.sql", "", "Spark SQL over the sources, unless there is a Python file"))
        with mistakes.collect():
            check_between("number of query.sources", len(config.sources), 1, SOURCES_MAX)
