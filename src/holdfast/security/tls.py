"""Certificates: files to contexts, for listeners and for clients, and whether the files have changed since.

The one rule: a context is made whole or not at all. Files that cannot be used leave their owner with those it has.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key, and the authorities of the other end's certificates.

    A listener without authorities asks for no certificate; a client without them trusts those of the system.
    """

    certificate: str
    key: str
    client_authorities: str = ""

    def context(self) -> ssl.SSLContext:
        """A server's context, with TLS 1.2 at least. `InvalidError` names the file that cannot be used. Reads files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_pair(context)
        if self.client_authorities:
            self._load_authorities(context, "TLS client CA")
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext:
        """A client's context: it checks the server's certificate and its name, and shows the certificate if there is one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.client_authorities:
            self._load_authorities(context, "TLS CA")
        else:
            context.load_default_certs()
        if self.certificate:
            self._load_pair(context)
        return context

    def stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Differs once a file was replaced or rewritten. Reads the file system."""
        return tuple(_stamp(Path(each)) for each in (self.certificate, self.key, self.client_authorities) if each)

    def _load_pair(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self.certificate, self.key or None, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            pair = f"{self.certificate} and {self.key}"
            raise InvalidError(
                "TLS certificate and key", pair, f"readable PEM files that fit ({_text(error)})"
            ) from None

    def _load_authorities(self, context: ssl.SSLContext, what: str) -> None:
        try:
            context.load_verify_locations(self.client_authorities)
        except (OSError, ssl.SSLError) as error:
            raise InvalidError(what, self.client_authorities, f"a readable PEM file ({_text(error)})") from None


def authorities(file: str) -> TlsFiles:
    """What a client without a certificate needs: the authorities of servers; empty: the system's."""
    return TlsFiles(certificate="", key="", client_authorities=file)


class CurrentContext:
    """The newest context whose files could be used. Making one reads files."""

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext] = TlsFiles.context) -> None:
        self._files, self._make = files, make
        self._stamps = files.stamps()
        self.context = make(files)

    async def follow(self, name: str, *, clock: Clock, reload_ms: int) -> None:
        """Use files that have changed, until cancelled."""
        while True:
            await clock.sleep_ms(reload_ms)
            found = await asyncio.to_thread(self._files.stamps)
            if found == self._stamps:
                continue
            self._stamps = found
            try:
                self.context = await asyncio.to_thread(self._make, self._files)
            except HoldfastError as error:  # perhaps half of them are written
                _log.error("%s: certificates not reloaded: %s", name, error)
                continue
            _log.info("%s: certificates reloaded", name)


def check_pair(certificate: str, key: str) -> None:
    """`InvalidError`: one of `tls_cert` and `tls_key` is missing."""
    if bool(certificate) != bool(key):
        name, other = ("tls_key", "tls_cert") if certificate else ("tls_cert", "tls_key")
        raise InvalidError(name, "", f"a file: {other} is given")


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
