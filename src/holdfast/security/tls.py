"""Certificates of a listener: files to a context, and whether the files have changed since.

The one rule: a context is made whole or not at all. Files that cannot be used leave the listener with those it has.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

from holdfast.vocabulary.errors import InvalidError


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key, and the authorities of clients' certificates; empty: they need none."""

    certificate: str
    key: str
    client_authorities: str = ""

    def context(self) -> ssl.SSLContext:
        """A server's context, with TLS 1.2 at least. `InvalidError` names the file that cannot be used. Reads files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            pair = f"{self.certificate} and {self.key}"
            raise InvalidError(
                "TLS certificate and key", pair, f"readable PEM files that fit ({_text(error)})"
            ) from None
        if self.client_authorities:
            try:
                context.load_verify_locations(self.client_authorities)
            except (OSError, ssl.SSLError) as error:
                raise InvalidError(
                    "TLS client CA", self.client_authorities, f"a readable PEM file ({_text(error)})"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Differs once a file was replaced or rewritten. Reads the file system."""
        return tuple(_stamp(Path(each)) for each in (self.certificate, self.key, self.client_authorities) if each)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _no_password() -> str:
    raise ssl.SSLError("an encrypted key is not supported")


def _text(error: OSError) -> str:
    return (error.strerror or str(error)) if not isinstance(error, ssl.SSLError) else (error.reason or str(error))
