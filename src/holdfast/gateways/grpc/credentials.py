"""TLS of the listener: the files of the settings, read again when one of them has changed.

The one rule: files that cannot be used leave the listener with those it has.
"""

import logging
from pathlib import Path
from typing import Final

import grpc

from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.security.tls import TlsFiles
from holdfast.vocabulary.errors import InvalidError

_log: Final = logging.getLogger(__name__)


def server_credentials(settings: GrpcSettings) -> grpc.ServerCredentials | None:
    """The credentials of the listener; None: it has no TLS. Reads files. `InvalidError` names one that cannot be used."""
    if not settings.tls_cert:
        return None
    files = TlsFiles(certificate=settings.tls_cert, key=settings.tls_key, client_authorities=settings.client_ca)
    reloading = _Reloading(files)
    return grpc.dynamic_ssl_server_credentials(
        reloading.configuration,
        reloading.changed,  # type: ignore[arg-type]  # None: as it was
        require_client_authentication=bool(settings.client_ca),
    )


class _Reloading:
    """The files as they were read last. `changed` is called by gRPC, on its threads, for every handshake."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamps = files.stamps()
        self.configuration = _read(files)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new files; None: they are as they were, or cannot be used."""
        stamps = self._files.stamps()
        if stamps == self._stamps:
            return None
        self._stamps = stamps
        try:
            return _read(self._files)
        except (InvalidError, OSError) as error:
            _log.warning("gRPC's certificate was not reloaded: %s", error)
            return None


def _read(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    files.context()  # whether they fit, with an error that names the file
    authorities = Path(files.client_authorities).read_bytes() if files.client_authorities else None
    pair = (Path(files.key).read_bytes(), Path(files.certificate).read_bytes())
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=authorities)
