"""The etcd program: found, its version checked, and its command line."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from holdfast.app.embedded_etcd.place import MemberPlace
from holdfast.stores.etcd.versions import OLDEST, known_fault, parse_version
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError

_VERSION_TIMEOUT_S: Final = 20


def find_program(place: MemberPlace) -> Path:
    """The program. `UsageError`: there is none, or its version is known to lose data and `?unsafe=1` was not given. Blocks."""
    given = place.settings.program
    found = shutil.which(given)
    if found is None:
        raise UsageError(
            f"no program {given} on PATH: install etcd 3.5.6 or newer, or name it with --set etcd.program=/path/to/etcd"
        )
    version = program_version(found)
    numbers = parse_version(version)
    if not place.unsafe:
        if numbers < OLDEST:
            raise InvalidError(f"version of {found}", version, "3.4 or newer (etcd:embedded?unsafe=1 accepts it)")
        if fault := known_fault(numbers):
            raise UsageError(f"{found} is etcd {version}, which {fault} (etcd:embedded?unsafe=1 accepts it)")
    return Path(found)


def program_version(program: str) -> str:
    """The version that a program reports."""
    try:
        output = subprocess.run(  # noqa: S603 (the program that the operator names)
            [program, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, env=environment()
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"program {program}", str(error)) from None
    _, title, version = output.partition("etcd Version:")
    if not title or not parse_version(version):
        raise UsageError(f"{program} --version reports no version of etcd: {output[:200]!r}")
    return ".".join(map(str, parse_version(version)))


def command_line(program: Path, place: MemberPlace, initial: dict[str, str]) -> list[str]:
    """The command line of the member; `initial`: the flags of its first start."""
    settings = place.settings
    flags = {
        "name": place.name,
        "data-dir": str(place.data),
        "listen-peer-urls": place.url(place.peer_listen),
        "listen-client-urls": place.url(place.client_listen),
        "advertise-client-urls": place.url(place.client),
        "quota-backend-bytes": str(settings.quota_bytes),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": f"{settings.compact_every_min}m",
        "heartbeat-interval": str(settings.heartbeat_ms),
        "election-timeout": str(settings.election_ms),
        "pre-vote": "true",
        "log-level": "warn",
        **initial,
    }
    # Without these it would complain about its default peer address, also where it ignores them.
    flags.setdefault("initial-advertise-peer-urls", place.peer_url)
    flags.setdefault("initial-cluster", f"{place.name}={place.peer_url}")
    if settings.tls:
        for kind in ("", "peer-"):
            flags |= {
                f"{kind}trusted-ca-file": settings.ca,
                f"{kind}cert-file": settings.cert,
                f"{kind}key-file": settings.key,
                f"{kind}client-cert-auth": "true",
            }
    return [str(program), *(f"--{name}={value}" for name, value in flags.items())]


def environment() -> dict[str, str]:
    """What the program is given: etcd refuses a variable that contradicts a flag."""
    ours = os.environ  # noqa: TID251 (what a child process is given)
    return {
        name: value for name, value in ours.items() if not name.startswith("ETCD_") or name == "ETCD_UNSUPPORTED_ARCH"
    }
