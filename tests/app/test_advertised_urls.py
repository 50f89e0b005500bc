"""What brokers tell of the URLs they were started with."""

import os
from pathlib import Path

import pytest

from holdfast.app.advertised_urls import advertised_url
from holdfast.stores.sqlite.settings import parse_url
from holdfast.stores.urls import parse_store_url


@pytest.mark.parametrize("url", ["s3://bucket/prefix?region=here", "etcd://a:1,b:2/prefix", "postgresql://host/name"])
def test_a_url_without_a_secret_is_told_as_it_is(url: str) -> None:
    assert advertised_url(url) == url


@pytest.mark.parametrize(
    "url", ["postgresql://me:word@host/name", "s3://b?secret_access_key=x", "redis://word@host", "memory:"]
)
def test_a_url_with_a_secret_or_without_a_place_is_not_told(url: str) -> None:
    assert advertised_url(url) is None


def test_files_are_told_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = advertised_url("sqlite:///a%20b/store.db?timeout_ms=50")
    assert told is not None
    monkeypatch.chdir("/")
    path, settings = parse_url(parse_store_url(told))
    assert str(path) == os.path.realpath(tmp_path / "a b" / "store.db")
    assert settings.timeout_ms == 50
    assert advertised_url(f"file://{tmp_path}/objects") == f"file://{tmp_path}/objects"
