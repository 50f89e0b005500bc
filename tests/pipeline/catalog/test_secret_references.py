"""References to secrets: what may be referred to, what is stored and shown, and what is used."""

from pathlib import Path

import pytest

from holdfast.pipeline.catalog.secret_references import check_references, resolved
from holdfast.pipeline.catalog.secrets import redacted
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.model.definition import ClickHouseConfig, IcebergConfig, KafkaConfig, SchemaRegistry, Security
from holdfast.pipeline.model.query import QueryConfig, StreamSource
from holdfast.pipeline.model.secret_references import SecretReferences, SecretReferenceSettings
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

ENV = "${env:HOLDFAST_SECRET_DB}"
DSN = f"http://ann:{ENV}@ch:8123/shop"


@pytest.fixture
def secrets(tmp_path: Path) -> SecretReferences:
    (tmp_path / "db").write_text("p/w@1\n")
    settings = SecretReferenceSettings(secret_dir=str(tmp_path))
    return SecretReferences(settings=settings, environment={"HOLDFAST_SECRET_DB": "planted@1", "PATH": "/bin"})


def test_every_secret_of_a_part_may_be_a_reference(secrets: SecretReferences, tmp_path: Path) -> None:
    file = f"${{file:{tmp_path / 'db'}}}"
    registry = SchemaRegistry(url=f"http://u:{file}@r:1", password=file)
    source = KafkaConfig(topic="t", security=Security(password=ENV), schema_registry=registry)
    found = resolved("source", source, secrets)
    assert found.security.password == "planted@1"
    assert (found.schema_registry.url, found.schema_registry.password) == ("http://u:p%2Fw%401@r:1", "p/w@1")
    assert resolved("sink", ClickHouseConfig(dsn=DSN), secrets).dsn == "http://ann:planted%401@ch:8123/shop"
    lake = IcebergConfig(table="a.b", catalog_options={"s3.secret-access-key": ENV, "region": "x"})
    assert resolved("sink", lake, secrets).catalog_options == {"s3.secret-access-key": "planted@1", "region": "x"}
    query = QueryConfig(sources=(StreamSource(topic="t", schema_registry=SchemaRegistry(password=ENV)),))
    assert resolved("query", query, secrets).sources[0].schema_registry.password == "planted@1"
    for part in (source, lake, query, ClickHouseConfig(dsn=DSN)):
        assert redacted(part) == part, "a reference is no secret: it is shown"
    assert "hidden" not in repr(redacted(ClickHouseConfig(dsn="http://ann:hidden@ch:1/"))), "a secret is not"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("${env:PATH}", "begins with HOLDFAST_SECRET_"),
        ("${file:/etc/passwd}", "a file below"),
        ("${file:DIR/../x}", "a file below"),
        ("${file:relative}", "a file below"),
        ("${env:}", "without braces"),
        ("${env:HOLDFAST_SECRET_DB", "without braces"),
    ],
)
def test_what_is_not_allowed_is_refused_when_it_is_saved_and_when_it_is_used(
    secrets: SecretReferences, tmp_path: Path, reference: str, why: str
) -> None:
    part = KafkaConfig(topic="t", security=Security(password=reference.replace("DIR", str(tmp_path))))
    with pytest.raises(InvalidError, match=rf"source\.security\.password.*{why}"):
        check_references("source", part, secrets.settings)
    with pytest.raises(InvalidError, match=why):
        resolved("source", part, secrets)


def test_by_default_no_file_may_be_referred_to() -> None:
    with pytest.raises(InvalidError, match=r"pipelines\.secret_dir is not set"):
        SecretReferenceSettings().check("x", "${file:/run/secrets/db}")
    with pytest.raises(InvalidError, match=r"pipelines\.env_prefix is empty"):
        SecretReferenceSettings(env_prefix="").check("x", ENV)
    with pytest.raises(InvalidError, match="an absolute path"):
        SecretReferenceSettings(secret_dir="secrets")


def test_a_secret_that_is_not_there_is_awaited(secrets: SecretReferences, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("planted")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    for reference, why in (
        ("${env:HOLDFAST_SECRET_NONE}", "no such variable"),
        (f"${{file:{tmp_path / 'none'}}}", "No such file"),
        (f"${{file:{tmp_path / 'link'}}}", "a link out of"),
        (f"${{file:{tmp_path / 'large'}}}", "more than 65536 bytes"),
    ):
        with pytest.raises(UnavailableError, match=why):
            secrets.resolve("x", reference)


async def test_what_is_stored_is_the_reference() -> None:
    clock, random = RealClock(), SystemRandom()
    async with open_store("memory:", clock=clock, random=random) as store:
        catalog = PipelineStore(store, clock=clock, random=random)
        made = await catalog.create("orders")
        _, part = await catalog.put_part(made.id, "sink", {"kind": "clickhouse", "dsn": DSN, "table": "t"})
        assert isinstance(part.value, ClickHouseConfig)
        assert (part.value.dsn, part.value.database) == (DSN, "shop")
        with pytest.raises(InvalidError, match="begins with HOLDFAST_SECRET_"):
            await catalog.put_part(made.id, "sink", {"dsn": "http://a:${env:HOME}@ch:1", "table": "t"})
