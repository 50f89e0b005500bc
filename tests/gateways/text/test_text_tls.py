"""The text protocol over TLS, with what nodes forward to each other."""

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.support.certificates import certificate
from tests.support.text import TextClient, text_cluster

from holdfast.gateways.text.settings import TextSettings
from holdfast.vocabulary.host_port import split_host_port


class SecureTextClient(TextClient):
    """One connection with TLS."""

    def __init__(self, address: str, authority: Path) -> None:
        super().__init__(address)
        self._context = ssl.create_default_context(cafile=str(authority))

    async def __aenter__(self) -> "SecureTextClient":
        found = split_host_port(self.address)
        assert found is not None
        self.reader, self.writer = await asyncio.open_connection(found.host, found.port, ssl=self._context)
        return self


async def test_what_is_put_at_one_node_is_got_at_the_other(tmp_path: Path) -> None:
    own, key = certificate(tmp_path, "node")
    tls = TextSettings(request_ms=60_000, tls_cert=str(own), tls_key=str(key), tls_ca=str(own))
    async with text_cluster(tmp_path, "ann", "bob", settings=tls) as cluster:
        ann, bob = cluster.text["ann"], cluster.text["bob"]
        async with SecureTextClient(ann.address, own) as first, SecureTextClient(bob.address, own) as second:
            assert await first.one("REGISTER words") == b"OK"
            assert await first.ask("PUT words 1", "PUT words 2") == [b"OK", b"OK"]
            assert [await each.one("GET words") for each in (first, second)] == [b"OK 1", b"OK 2"]
        assert ann.server.counters.forwarded + bob.server.counters.forwarded, "the cursor is on one of them"
        async with TextClient(cluster.text["ann"].address) as plain:
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await plain.one("METRICS")
