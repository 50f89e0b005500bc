"""TLS on the listener: certificates of clients are principals, and certificates that change are used from then on."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import certificate
from tests.support.kafka_security import SecureClient, SecureGateway, allow, secure_gateway
from tests.support.kafka_wire import WireClient
from tests.support.waiting import async_until

from holdfast.security.acls import Operation, ResourceType
from holdfast.security.tls import TlsFiles
from holdfast.vocabulary.errors import InvalidError

Pair = tuple[Path, Path]


async def connected(secure: SecureGateway, trusted: Path, own: Pair | None = None) -> SecureClient:
    context = ssl.create_default_context(cafile=str(trusted))
    if own is not None:
        context.load_cert_chain(*own)
    reader, writer = await asyncio.open_connection("127.0.0.1", secure.gateway.port, ssl=context)
    client = WireClient(reader, writer)
    secure.gateway._clients.append(client)
    return SecureClient(client)


def tls(server: Pair) -> dict[str, Any]:
    return {"tls_cert": str(server[0]), "tls_key": str(server[1])}


async def visible(client: SecureClient) -> list[str]:
    return [each.name for each in (await client.ask("Metadata", topics=None)).topics]


async def test_a_certificate_is_a_principal(tmp_path: Path) -> None:
    server, ann, eve = (certificate(tmp_path, name) for name in ("node", "Ann", "eve"))
    rules: dict[str, Any] = {"client_ca": str(ann[0]), "principal_rules": "RULE:^CN=(.*)$/$1/L"}
    async with secure_gateway(tmp_path, topics={"mine": 1, "other": 1}, sasl="", **tls(server), **rules) as secure:
        await secure.set_acls([allow("ann", Operation.READ, ResourceType.TOPIC, "mine")])
        assert await visible(await connected(secure, server[0], ann)) == ["mine"]
        for own in (None, eve):
            with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
                await visible(await connected(secure, server[0], own))


async def test_a_certificate_without_a_principal_is_refused(tmp_path: Path) -> None:
    server, ann = certificate(tmp_path, "node"), certificate(tmp_path, "ann")
    rules: dict[str, Any] = {"client_ca": str(ann[0]), "principal_rules": "RULE:^CN=bob$/bob/"}
    async with secure_gateway(tmp_path, sasl="", **tls(server), **rules) as secure:
        client = await connected(secure, server[0], ann)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await visible(client)


async def test_with_sasl_the_user_counts_and_the_certificate_is_needed_as_well(tmp_path: Path) -> None:
    server, ann = certificate(tmp_path, "node"), certificate(tmp_path, "ann")
    async with secure_gateway(tmp_path, topics={"t": 1}, **tls(server), client_ca=str(ann[0])) as secure:
        await secure.create_user("bob")
        await secure.set_acls([allow("bob", Operation.READ, ResourceType.TOPIC, "t")])
        client = await connected(secure, server[0], ann)
        assert not await client.log_in("PLAIN", "bob")
        assert await visible(client) == ["t"]


async def test_a_new_certificate_is_used_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = certificate(tmp_path, "old"), certificate(tmp_path, "new")
    used = tmp_path / "used.pem", tmp_path / "used.key"

    def use(pair: Pair) -> None:
        for source, target in zip(pair, used, strict=True):
            target.with_suffix(".tmp").write_bytes(source.read_bytes())
            target.with_suffix(".tmp").replace(target)

    use(old)
    async with secure_gateway(tmp_path, topics={"t": 1}, **tls(used), tls_reload_ms=20) as secure:
        first = await connected(secure, old[0])
        used[0].write_text("not a certificate")  # half written: the old one stays in use
        await async_until(lambda: "certificates not reloaded" in caplog.text)
        await connected(secure, old[0])
        use(new)

        async def renewed() -> bool:
            try:
                await connected(secure, new[0])
            except ssl.SSLError:
                return False
            return True

        await async_until(renewed)
        with pytest.raises(ssl.SSLError):
            await connected(secure, old[0])
        await secure.create_user("ann")
        assert not await first.log_in("PLAIN", "ann"), "an open connection stays"


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    pair, other = certificate(tmp_path, "node"), certificate(tmp_path, "other")
    missing = tmp_path / "missing.pem"
    for certificate_file, key, says in (
        (missing, pair[1], "missing.pem.*No such file"),
        (pair[0], other[1], "other.key.*MISMATCH"),
        (pair[1], pair[1], "node.key"),
    ):
        with pytest.raises(InvalidError, match=says):
            TlsFiles(certificate=str(certificate_file), key=str(key)).context()
    with pytest.raises(InvalidError, match=r"client CA.*missing\.pem"):
        TlsFiles(certificate=str(pair[0]), key=str(pair[1]), client_authorities=str(missing)).context()
