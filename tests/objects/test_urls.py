"""URLs: what opens, what is refused, and what is never shown."""

from pathlib import Path

import pytest

from holdfast.contracts.objects import Missing, Stored
from holdfast.objects import urls
from holdfast.objects.urls import open_objects, parse_objects_url
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import ClosedError, InvalidError
from holdfast.vocabulary.random import SystemRandom


async def refusal(url: str) -> str:
    with pytest.raises(InvalidError) as refused:
        async with open_objects(url, clock=RealClock(), random=SystemRandom()):
            pass
    return str(refused.value)


async def test_an_unknown_scheme_is_an_error_that_lists_the_known_ones() -> None:
    text = await refusal("s4://bucket")
    for example in ("memory:", "file:///path/to/folder", "s3://bucket/prefix", "gs://", "az://"):
        assert example in text


@pytest.mark.parametrize(
    "url",
    [
        "memory:?deadlin_ms=5",
        "file:///tmp/x?threads=5",
        "s3://bucket?regoin=eu",
        "gs://bucket?access_key_id=1",
        "az://container?region=eu",
    ],
)
async def test_a_misspelt_option_is_refused(url: str) -> None:
    text = await refusal(url)
    assert "must be one of" in text
    assert "deadline_ms" in text


@pytest.mark.parametrize(
    "url",
    [
        "memory:?deadline_ms=soon",
        "memory:?deadline_ms=0",
        "file://host/path",
        "file:",
        "s3://?region=eu",
        "s3://bucket?threads_max=0",
        "s3://bucket?virtual_hosted_style_request=maybe",
        "s3://bucket?ca_file=/nowhere.pem",
        "az://container?account_name=a&account_key=!!",
    ],
)
async def test_an_invalid_value_is_refused(url: str) -> None:
    await refusal(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket?secret_access_key=hunter2&regoin=eu",
        "s3://bucket?secret_acces_key=hunter2",
        "s3://user:hunter2@bucket",
        "s3://bucket?endpoint=https://user:hunter2@host&regoin=eu",
        "az://container?sas_key=hunter2&regoin=eu",
        "gs://bucket?service_account_key=hunter2",
        "s4://bucket?token=hunter2",
    ],
)
async def test_a_secret_is_never_shown(url: str) -> None:
    assert "hunter2" not in await refusal(url)


def test_what_is_no_url_at_all_is_refused_without_its_text() -> None:
    with pytest.raises(InvalidError, match="invalid objects URL 's3://…': must be a URL") as refused:
        parse_objects_url("s3://[bucket/?secret_access_key=hidden")
    assert "hidden" not in str(refused.value)


def test_the_shown_url_has_the_location() -> None:
    url = parse_objects_url("s3://bucket/pre/fix?region=eu-central-1&secret_access_key=x&deadline_ms=5")
    assert url.shown == "s3://bucket/pre/fix?region=eu-central-1&secret_access_key=***&deadline_ms=5"
    assert parse_objects_url("file:///data/objects").shown == "file:///data/objects"
    assert parse_objects_url("memory:").shown == "memory:"


async def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_driver(name: str) -> None:
        raise ModuleNotFoundError("No module named 'obstore'", name="obstore")

    monkeypatch.setattr(urls, "import_module", without_driver)
    assert "pip install '.[s3]'" in await refusal("s3://bucket")


async def test_a_file_url_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (f"file://{tmp_path}/a%20b/c", "file:relative/d"):
        async with open_objects(url, clock=RealClock(), random=SystemRandom()) as objects:
            assert await objects.put("k", [b"x"]) == Stored("k", 1)
    assert (tmp_path / "a b" / "c" / "k").read_bytes() == b"x"
    assert (tmp_path / "relative" / "d" / "k").read_bytes() == b"x"


@pytest.mark.parametrize("engine", ["memory:", "file:closed", "s3://b?check=0&region=x&endpoint=http://127.0.0.1:1"])
async def test_a_closed_engine_refuses_every_call(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_objects(engine, clock=RealClock(), random=SystemRandom()) as objects:
        if not engine.startswith("s3"):
            assert await objects.get("k") == Missing("k")
    with pytest.raises(ClosedError):
        await objects.get("k")
    with pytest.raises(ClosedError):
        await objects.put("k", [b"x"])
    with pytest.raises(ClosedError):
        await objects.delete(["k"])
    with pytest.raises(ClosedError):
        [info async for info in objects.list("")]
