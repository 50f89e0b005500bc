"""Validation of a source's format and its options.

The one rule: an option that the format does not use is a mistake, so that nobody waits for its effect.
"""

from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.model.column_mapping import COLUMNS_MAX
from holdfast.pipeline.model.definition import CsvOptions, DebeziumOptions, KafkaConfig, SchemaRegistry
from holdfast.pipeline.model.errors import MissingFieldError, Mistakes
from holdfast.pipeline.model.redaction import REDACTED, redacted_url
from holdfast.pipeline.model.secret_references import masked
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.settings import KIB, check_between

SCHEMA_CHARS_MAX: Final = 150 * KIB
TEXT_CHARS_MAX: Final = 2_000
WITH_SCHEMA: Final = ("avro", "protobuf")
WITH_REGISTRY: Final = ("json", *WITH_SCHEMA)


def check_format(config: KafkaConfig, mistakes: Mistakes) -> None:
    """Note what is wrong with the format's options."""
    registry = config.schema_registry
    _check_registry(registry, mistakes)
    if registry.url and config.format not in WITH_REGISTRY:
        mistakes.add(InvalidError("source.schemaRegistry", "a registry", f"absent: {config.format} has no schema"))
    _check_schema(config, mistakes)
    if config.format == "csv":
        _check_csv(config.csv, mistakes)
    elif config.csv != CsvOptions():
        mistakes.add(InvalidError("source.csv", "options", f"absent: the format is {config.format}"))
    if config.raw != "utf-8" and config.format != "raw":
        mistakes.add(InvalidError("source.raw", config.raw, f"absent: the format is {config.format}"))
    if config.envelope != "none" and config.format not in WITH_REGISTRY:
        mistakes.add(InvalidError("source.envelope", config.envelope, f"absent: {config.format} has no objects"))
    if config.debezium != DebeziumOptions() and config.envelope != "debezium":
        mistakes.add(InvalidError("source.debezium", "options", "absent: the envelope is not debezium"))


def _check_registry(registry: SchemaRegistry, mistakes: Mistakes) -> None:
    for name in ("url", "user", "password", "ca_file"):
        text = getattr(registry, name)
        if len(text) > TEXT_CHARS_MAX or (text and not text.isprintable()):
            where = f"source.schemaRegistry.{'caFile' if name == 'ca_file' else name}"
            mistakes.add(
                InvalidError(where, f"{len(text)} characters", f"at most {TEXT_CHARS_MAX} printable characters")
            )
    with mistakes.collect():
        check_between("source.schemaRegistry.timeoutMs", registry.timeout_ms, 100, 600_000)
    if not registry.url:
        if registry != SchemaRegistry(timeout_ms=registry.timeout_ms):
            mistakes.add(MissingFieldError("source.schemaRegistry.url"))
        return
    try:
        parts = urlsplit(masked(registry.url)[0])
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment:
        mistakes.add(
            InvalidError(
                "source.schemaRegistry.url", redacted_url(registry.url), "http[s]://host:port, with a path or not"
            )
        )
    elif registry.password not in ("", REDACTED) and not registry.user:
        mistakes.add(MissingFieldError("source.schemaRegistry.user"))


def _check_schema(config: KafkaConfig, mistakes: Mistakes) -> None:
    if config.format not in WITH_SCHEMA:
        for name in ("schema", "message"):
            if getattr(config, name):
                mistakes.add(InvalidError(f"source.{name}", "text", f"absent: the format is {config.format}"))
        return
    if config.schema and config.schema_registry.url:
        mistakes.add(InvalidError("source.schema", "text", "absent where there is a schemaRegistry"))
    elif not config.schema and not config.schema_registry.url:
        mistakes.add(
            InvalidError("source.schemaRegistry.url", "", f"given, or else schema: {config.format} needs one of them")
        )
    with mistakes.collect():
        check_between("length of source.schema", len(config.schema), 0, SCHEMA_CHARS_MAX)
    if config.format == "protobuf" and config.schema and not config.message:
        mistakes.add(MissingFieldError("source.message"))
    elif config.message and (config.format != "protobuf" or not config.schema):
        mistakes.add(
            InvalidError("source.message", config.message[:100], "absent: only a Protobuf schema of the source has one")
        )
    elif config.format == "avro" and config.schema and not config.schema_registry.url:
        # A .proto file is compiled by `validate` and by workers: that takes a process.
        with mistakes.collect(), suppress(NotInstalledError):  # the library is where the pipeline runs, not here
            value_decoder(config)


def _check_csv(options: CsvOptions, mistakes: Mistakes) -> None:
    if options.header == bool(options.columns):
        allowed = "given" if not options.header else "absent: every record brings its names (header)"
        mistakes.add(InvalidError("source.csv.columns", list(options.columns)[:3], allowed))
    with mistakes.collect():
        check_between("number of source.csv.columns", len(options.columns), 0, COLUMNS_MAX)
    if len(set(options.columns)) < len(options.columns) or "" in options.columns:
        mistakes.add(InvalidError("source.csv.columns", list(options.columns)[:3], "names, each once"))
    for name, text, least in (
        ("delimiter", options.delimiter, 1),
        ("quote", options.quote, 0),
        ("escape", options.escape, 0),
    ):
        if not least <= len(text) <= 1 or not text.isascii() or text in ("\n", "\r"):
            mistakes.add(
                InvalidError(f"source.csv.{name}", text[:10], "one ASCII character" + ("" if least else ", or empty"))
            )
    if options.delimiter and options.delimiter in (options.quote, options.escape):
        mistakes.add(
            InvalidError("source.csv.delimiter", options.delimiter, "neither the quote nor the escape character")
        )
