"""S3 over TLS: a private authority that is named is trusted, and nobody else is."""

import ssl
import urllib.request
from pathlib import Path

import pytest
from tests.support.certificates import certificate, issued_certificate
from tests.support.object_engines.moto import MotoServer
from tests.support.object_engines.s3 import BUCKET

from holdfast.objects.urls import open_objects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.random import SystemRandom


class MotoServerWithTls(MotoServer):
    """The same, with a certificate of a private authority, `ca`."""

    @property
    def ca(self) -> Path:
        return self.directory / "s3-ca.pem"

    def argv(self) -> list[str]:
        _, issued, key = issued_certificate(self.directory, "s3")
        return [*super().argv(), "-c", str(issued), "-k", str(key)]

    def ready(self) -> bool:
        """It is, once it has made our bucket."""
        context = ssl.create_default_context(cafile=str(self.ca))
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=5, context=context).close()
        except OSError:
            return False
        return True


async def test_a_private_authority_is_trusted_where_it_is_named_and_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    other, _ = certificate(tmp_path, "other")
    clock, random = RealClock(), SystemRandom()
    with MotoServerWithTls(tmp_path).running() as server:
        url = f"s3://{BUCKET}/x?endpoint=https://127.0.0.1:{server.port}&region=us-east-1"
        async with open_objects(f"{url}&ca_file={server.ca}", clock=clock, random=random) as objects:
            await objects.put("a", [b"over TLS"])
            assert bytes(await objects.get("a")) == b"over TLS"  # type: ignore[arg-type]
        for ca in (f"&ca_file={other}", ""):
            with pytest.raises(UsageError, match=r"its certificate is not trusted \(UnknownIssuer\); check ca_file"):
                async with open_objects(url + ca, clock=clock, random=random) as objects:
                    await objects.get("a")
