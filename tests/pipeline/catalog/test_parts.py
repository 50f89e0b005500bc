"""Parts as they come in: defaults are applied, refusals say what is wrong, secrets are kept back."""

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipeline.catalog.parts import decode_part, encode_part, read_part, read_parts
from holdfast.pipeline.catalog.revisions import compose
from holdfast.pipeline.catalog.secrets import redacted, restored
from holdfast.pipeline.catalog.stored_parts import validated_name
from holdfast.pipeline.model.definition import (
    ClickHouseConfig,
    DeltaConfig,
    DriftPolicy,
    IcebergConfig,
    KafkaConfig,
    SqlConfig,
)
from holdfast.pipeline.model.errors import InvalidValuesError
from holdfast.pipeline.model.redaction import redacted_url
from holdfast.vocabulary.errors import InvalidError

COLUMN = {"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False}
DSN = "http://ann:pa%3Ass@ch:8123/shop"
SASL = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "ann", "password": "secret"}


def test_what_is_stored_has_every_default_in_it() -> None:
    saved = msgspec.json.decode(encode_part(read_part("sink", b'{"dsn": "http://h:8123", "table": "t"}')))
    assert saved["batchSize"] == 100_000
    assert (saved["database"], saved["batchFlushIntervalMs"], saved["dedupWindow"]) == ("default", 2_000, 10_000)
    assert saved["kind"] == "clickhouse"
    source = msgspec.json.decode(encode_part(read_part("source", {"topic": "t"})))
    assert (source["start"], source["groupId"], source["security"]["protocol"]) == ("earliest", "", "PLAINTEXT")


def test_click_sinks_spellings_are_read() -> None:
    sink = read_part("sink", {"table": "t", "batchFlushInterval": "1.5s", "batchSize": 500})
    assert isinstance(sink, ClickHouseConfig)
    assert (sink.batch_flush_interval_ms, sink.batch_size) == (1_500, 500)
    seconds = read_part("sink", {"table": "t", "batchFlushInterval": 2})
    assert isinstance(seconds, ClickHouseConfig)
    assert seconds.batch_flush_interval_ms == 2_000
    source = read_part("source", {"topic": "t", "brokers": "a:1, b:2"})
    assert isinstance(source, KafkaConfig)
    assert source.brokers == ("a:1", "b:2")
    assert read_part("drift", {"unknownFields": "add_column"}) == DriftPolicy(unknown_fields="add-column")
    assert read_part("sql", {"sql": " select * from rows \n"}) == SqlConfig(sql="select * from rows")


def test_a_part_comes_back_from_the_store_as_it_was_saved() -> None:
    for name, saved in (
        ("source", {"topic": "t", "brokers": ["a:1"], "security": SASL}),
        ("sink", {"dsn": DSN, "table": "t"}),
        ("sink", {"kind": "delta", "url": "s3://b/p"}),
        ("mapping", {"columns": [COLUMN], "ignored": ["x"]}),
        ("filters", {"enabled": True, "expression": "id > 1"}),
    ):
        part = read_part(name, saved)
        assert decode_part(name, encode_part(part)) == part


REFUSALS: list[tuple[str, Any, str]] = [
    ("sauce", {}, "invalid part of a pipeline 'sauce': must be one of source, sink, mapping, filters, sql, drift"),
    ("source", b"{", "invalid source 'text': must be JSON: "),
    ("source", b"[]", "invalid source 'an array': must be an object"),
    ("source", {}, "missing source.topic"),
    ("source", {"topic": "a b"}, "1 to 249 letters, digits, . _ and -"),
    (
        "source",
        {"topic": "t", "partitons": 3},
        "unknown field source.partitons: must be one of topic, brokers,",
    ),
    ("source", {"topic": "t", "brokers": ["a"]}, "invalid source.brokers[0] 'a': must be host:port"),
    ("source", {"topic": "t", "brokers": ["a:99999"]}, "must be host:port"),
    ("source", {"topic": "t", "start": "yesterday"}, "earliest, latest, or an ISO 8601 time"),
    ("source", {"topic": "t", "security": SASL}, "must be PLAINTEXT for a topic of this cluster"),
    (
        "source",
        {"topic": "t", "brokers": ["a:1"], "security": {**SASL, "username": ""}},
        "missing source.security.username",
    ),
    (
        "source",
        {"topic": "t", "brokers": ["a:1"], "security": {"password": "x"}},
        "SASL_PLAINTEXT or SASL_SSL when there is a mechanism",
    ),
    (
        "sink",
        {"kind": "oracle"},
        "invalid sink.kind 'oracle': must be one of clickhouse, delta, iceberg, parquet, topic",
    ),
    ("sink", {"table": "t", "batchSize": 0}, "invalid sink.batchSize 0: must be between 1 and 1000000"),
    (
        "sink",
        {"table": "t", "batchSize": "many"},
        "invalid sink.batchSize 'many': must be a whole number",
    ),
    ("sink", {"table": "t", "batchFlushInterval": "soon"}, "a duration such as 2s, 500ms or 1m"),
    ("sink", {"dsn": "ftp://u:geheim@h/d", "table": "t"}, "http://user:password@host:port/database"),
    ("sink", {"dsn": "http://u:geheim@h:x/d", "table": "t"}, "http://user:password@host:port/database"),
    ("sink", {"dsn": "http://h:1/d?a=b", "table": "t"}, "without options behind a question mark"),
    ("sink", {"table": " t"}, "printable, without spaces at either end"),
    ("sink", {"table": "t", "insertRatePerSecond": 500, "dedupWindow": 1000}, "at least 30000: that many inserts"),
    ("sink", {"table": "t", "versionColumn": "v"}, "only ReplacingMergeTree has one"),
    ("sink", {"kind": "parquet", "url": ""}, "a URL or a path"),
    ("mapping", {"columns": []}, "invalid mapping.columns '0 columns': must be 1 to 1000 columns"),
    ("filters", {"enabled": True, "expression": "id >"}, "expected a value or field, found the end"),
    ("filters", {"language": "sql"}, "holdfast: no other"),
    ("filters", {"language": "CEL", "expression": "a == 1"}, "not CEL either"),
    ("sql", {"sql": "x" * 20_001}, "at most 20000"),
    (
        "drift",
        {"unknownFields": "panic"},
        "invalid drift.unknownFields 'panic': must be one of ignore, add-column,",
    ),
    ("drift", {"dlqRowsKept": 1}, "between 1000 and 1000000000"),
]


@pytest.mark.parametrize(("name", "given", "words"), REFUSALS)
def test_an_error_names_the_mistake_and_what_is_allowed(name: str, given: Any, words: str) -> None:
    with pytest.raises(InvalidError) as refused:
        read_part(name, given)
    assert words in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_all_mistakes_of_all_parts_are_reported_at_once_each_once() -> None:
    security = {"protocol": "SASL_SSL", "mechanism": "NTLM", "password": 5, "passwrd": "geheim"}
    given: dict[str, Any] = {
        "source": {"topik": "t", "brokers": ["a:1", "b", 3], "start": "soon", "security": security},
        "sink": {"dsn": "http://u:geheim@h:x", "batchSize": 0, "engine": "Log", "batchFlushInterval": "soon"},
        "filters": {"enabled": "yes", "expression": "id >"},
        "drift": [],
    }
    with pytest.raises(InvalidValuesError) as refused:
        read_parts(given)
    assert sorted(error.what for error in refused.value.errors) == [
        "drift",
        "filters.enabled",
        "filters.expression",
        "sink.batchFlushInterval",
        "sink.batchSize",
        "sink.dsn",
        "sink.engine",
        "source.brokers[1]",
        "source.brokers[2]",
        "source.security.mechanism",
        "source.security.password",
        "source.security.passwrd",
        "source.security.username",
        "source.start",
        "source.topic",
        "source.topik",
    ]
    text = str(refused.value)
    assert text.startswith("16 mistakes: ")
    assert "invalid source.security.mechanism" in text
    assert "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or null" in text
    assert "geheim" not in text
    assert pickle.loads(pickle.dumps(refused.value)).errors[3].what == refused.value.errors[3].what


def test_a_part_has_a_size() -> None:
    columns = [
        {"fieldPath": f"{n}" + "x" * 400, "column": f"c{n}", "type": "Int64", "nullable": True} for n in range(900)
    ]
    with pytest.raises(InvalidError, match=r"invalid size of mapping '\d+ bytes': must be at most 204800 bytes"):
        read_part("mapping", {"columns": columns})


def test_names_are_checked() -> None:
    assert validated_name("Cafe\u0301") == "Café"
    for bad in ("", " x", "a\nb", "é" * 101, None, 3):
        with pytest.raises(InvalidError, match="1 to 200 bytes of printable text, no space at either end"):
            validated_name(bad)


def test_secrets_are_redacted() -> None:
    sink = read_part("sink", {"dsn": DSN, "table": "t"})
    source = read_part("source", {"topic": "t", "brokers": ["a:1"], "security": SASL})
    places = {"catalogUri": "postgresql://ann:pa%3Ass@db/c", "warehouse": "s3://b?secret_access_key=geheim"}
    lake = read_part("sink", {"kind": "iceberg", "table": "t", **places})
    revision = compose({"source": source, "sink": sink, "mapping": read_part("mapping", {"columns": [COLUMN]})}, 1)
    assert isinstance(revision, msgspec.Struct)
    for secretive in (sink, source, lake, revision):
        for shown in (repr(secretive), msgspec.json.encode(redacted(secretive)).decode()):
            assert "***" in shown
            assert not any(secret in shown for secret in ("pa%3Ass", 'secret"', "'secret'", "geheim"))
    assert isinstance(lake, IcebergConfig)
    assert redacted(lake).warehouse == "s3://b?secret_access_key=***"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8123/d", "http://h:8123/d"),
        ("http://u@h/d", "http://u@h/d"),
        ("http://u:p@h/d", "http://u:***@h/d"),
        ("http://u:p@w@h/d", "http://u:***@h/d"),
        ("http://u:p/w@h/d", "http://***@h/d"),
        ("http://u:12/w@h/d", "http://***@h/d"),
        ("http://u:p@h:x/d", "http://***@h:x/d"),
        ("me:password@h/d", "***@h/d"),
        ("me:pass//word@h/d", "***@h/d"),
        ("/data/lake", "/data/lake"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("s3://b/p?region=x&aws_secret_access_key=y", "s3://b/p?region=x&aws_secret_access_key=***"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redacted_url(url) == shown


def test_a_part_that_comes_back_redacted_keeps_its_secret() -> None:
    stored = read_part("sink", {"dsn": DSN, "table": "t"})
    edited = read_part("sink", {"dsn": "http://ann:***@ch:8123/other", "table": "t2"})
    kept = restored(edited, stored)
    assert isinstance(kept, ClickHouseConfig)
    assert (kept.dsn, kept.table, kept.database) == ("http://ann:pa%3Ass@ch:8123/other", "t2", "other")
    source = read_part("source", {"topic": "t", "brokers": ["a:1", "b:2"], "security": SASL})
    again = read_part("source", {"topic": "u", "brokers": ["b:2"], "security": {**SASL, "password": "***"}})
    after = restored(again, source)
    assert isinstance(after, KafkaConfig)
    assert after.security.password == "secret"


_WORD = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
_WRITTEN = st.text(st.sampled_from("aZ09%3A%2F+-._~!$'"), min_size=1, max_size=12)


@given(
    user=_WORD,
    password=_WRITTEN,
    host=_WORD,
    options=st.lists(
        st.tuples(st.sampled_from(["region", "secret_access_key", "a", "sas_token"]), _WRITTEN), max_size=3
    ),
)
def test_what_is_read_back_and_saved_again_is_what_was_saved(
    user: str, password: str, host: str, options: list[tuple[str, str]]
) -> None:
    different = dict(options)
    query = "?" + "&".join(f"{name}={value}" for name, value in different.items()) if different else ""
    sink = DeltaConfig(url=f"s3://{user}:{password}@{host}/lake{query}")
    shown = redacted(sink)
    assert f":{password}@" not in shown.url
    assert not any(f"{name}={value}" in shown.url for name, value in different.items() if name not in ("region", "a"))
    assert restored(shown, sink) == sink


@pytest.mark.parametrize(
    "dsn", ["http://ann:***@evil:8123/shop", "http://bob:***@ch:8123/shop", "https://ann:***@ch:8123/shop"]
)
def test_a_stored_secret_is_not_sent_elsewhere(dsn: str) -> None:
    stored = read_part("sink", {"dsn": DSN, "table": "t"})
    with pytest.raises(InvalidError, match="the stored one is for another server or user"):
        restored(read_part("sink", {"dsn": dsn, "table": "t"}), stored)
    with pytest.raises(InvalidError, match="none is stored"):
        restored(read_part("sink", {"dsn": dsn, "table": "t"}), None)
    source = read_part("source", {"topic": "t", "brokers": ["a:1"], "security": SASL})
    moved = read_part("source", {"topic": "t", "brokers": ["a:1", "evil:1"], "security": {**SASL, "password": "***"}})
    with pytest.raises(InvalidError, match="the stored one is for other brokers or another user"):
        restored(moved, source)


def test_parts_that_contradict_each_other_are_no_revision() -> None:
    parts = {"source": read_part("source", {"topic": "t"}), "mapping": read_part("mapping", {"columns": [COLUMN]})}
    loop = compose({**parts, "sink": read_part("sink", {"kind": "topic", "topic": "t", "keyColumn": "nobody"})}, 1)
    assert loop == (
        "sink.topic: 't' is the source: the pipeline would read what it writes",
        "sink.keyColumn: 'nobody' is not a column of the mapping",
    )
    nameless = compose({**parts, "sink": read_part("sink", {"dsn": DSN})}, 1)
    assert nameless == ("sink.table: missing",)


def test_secret_options_of_a_catalog_are_hidden_and_kept_for_the_same_catalog() -> None:
    given = {"kind": "iceberg", "catalog": "rest", "catalogUri": "http://c", "table": "a.b"}
    stored = read_part("sink", {**given, "catalogOptions": {"credential": "id:pw", "scope": "all"}})
    shown = redacted(stored)
    assert isinstance(shown, IcebergConfig)
    assert shown.catalog_options == {"credential": "***", "scope": "all"}
    assert restored(shown, stored) == stored
    for change in (
        {"catalogUri": "http://evil"},
        {"catalogOptions": {"credential": "***", "scope": "all", "uri": "x"}},
    ):
        hidden = {**given, "catalogOptions": {"credential": "***", "scope": "all"}, **change}
        with pytest.raises(InvalidError, match="the secret itself"):
            restored(read_part("sink", hidden), stored)
