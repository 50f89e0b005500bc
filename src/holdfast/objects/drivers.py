"""Drivers: the obstore stores for S3, GCS and Azure, and the URL options of each.

Options have the driver's names; `endpoint` is the same for all. Credentials that are not in the URL come from the driver's own
sources: environment, profiles, instance metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from holdfast.objects.urls import ObjectsUrl
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.settings import check_at_least, check_between

DriverStore = S3Store | GCSStore | AzureStore


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """Limits of one attempt and of concurrency. The deadline of all attempts is in `RetrySettings`."""

    attempt_timeout_ms: int = 20_000
    connect_timeout_ms: int = 3_000
    threads_max: int = 32
    ca_file: str = ""  # PEM of a private authority
    check: bool = True  # whether opening checks the bucket
    unsafe: bool = False  # whether a server that ignores if-absent is accepted
    task_role: str = ""  # whose credentials tasks get, see `task_credentials`
    sts_endpoint: str = ""

    def __post_init__(self) -> None:
        check_at_least("attempt_timeout_ms", self.attempt_timeout_ms, 1)
        check_at_least("connect_timeout_ms", self.connect_timeout_ms, 1)
        check_between("threads_max", self.threads_max, 1, 1_024)


_S3: Final = (
    *("access_key_id", "checksum_algorithm", "disable_bulk_delete", "endpoint", "region", "request_payer", "role_arn"),
    *("s3_express", "secret_access_key", "server_side_encryption", "session_token", "skip_signature"),
    *("sse_bucket_key_enabled", "sse_kms_key_id", "unsigned_payload", "virtual_hosted_style_request"),
)
_GCS: Final = (
    *("application_credentials", "bearer_token", "endpoint", "service_account", "service_account_key"),
    "skip_signature",
)
_AZURE: Final = (
    *("account_key", "account_name", "authority_host", "client_id", "client_secret", "endpoint"),
    *("federated_token_file", "msi_endpoint", "object_id", "sas_key", "skip_signature", "tenant_id", "token"),
    *("use_azure_cli", "use_emulator"),
)
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {"s3": _S3, "gs": _GCS, "az": _AZURE}

# The driver retries pages of a listing one by one: otherwise a listing of a thousand pages might never finish.
_PAGE_RETRIES: Final = 3


def connect(url: ObjectsUrl, settings: RemoteSettings) -> tuple[DriverStore, DriverStore]:
    """The driver's stores for single requests and for listings. Sends nothing; reads the CA file."""
    bucket, prefix = url.parts.netloc, unquote(url.parts.path).strip("/")
    if not bucket or "@" in bucket:
        raise InvalidError("objects URL", url.shown, f"{url.parts.scheme}://bucket/prefix")
    return _build(url, settings, bucket, prefix, 0), _build(url, settings, bucket, prefix, _PAGE_RETRIES)


def _build(url: ObjectsUrl, settings: RemoteSettings, bucket: str, prefix: str, retries: int) -> DriverStore:
    config: dict[str, Any] = {name: value for name, value in url.options.items() if name in OPTIONS[url.parts.scheme]}
    client: dict[str, Any] = {
        "timeout": timedelta(milliseconds=settings.attempt_timeout_ms),
        "connect_timeout": timedelta(milliseconds=settings.connect_timeout_ms),
        # Plain HTTP only where the URL asks for it.
        "allow_http": config.get("endpoint", "").startswith("http://") or "use_emulator" in config,
    }
    if settings.ca_file:
        client["root_certificate"] = _read_ca(settings.ca_file)
    shared: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": client,
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(milliseconds=settings.attempt_timeout_ms)},
    }
    try:
        if url.parts.scheme == "s3":
            return S3Store(bucket, config=config, **shared)  # type: ignore[arg-type] # checked against _S3
        if url.parts.scheme == "gs":
            if "endpoint" in config:
                config["base_url"] = config.pop("endpoint")
            return GCSStore(bucket, config=config, **shared)  # type: ignore[arg-type] # checked against _GCS
        return AzureStore(bucket, config=config, **shared)  # type: ignore[arg-type] # checked against _AZURE
    except (BaseError, ValueError) as error:
        # The first line has the cause; none of them quotes a key.
        raise UsageError(f"invalid objects URL {url.shown}: {str(error).partition(chr(10))[0]}") from None


def _read_ca(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidError("ca_file", path, f"a readable PEM file ({error.strerror})") from None
