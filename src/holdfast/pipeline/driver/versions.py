"""The versions that decide what a record is mapped to, on the driver and on its executors.

The one rule: a range is mapped by what the driver has, or not at all. Another release of a library may read a number, a time or a
pattern in another way.
"""

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import msgspec

import holdfast
from holdfast.vocabulary.errors import HoldfastError

UNKNOWN: Final = "unknown"
_PACKAGES: Final = {
    **{name: name for name in ("pyarrow", "msgspec", "fastavro", "protobuf")},
    "re2": "google-re2",
    "protoc": "grpcio-tools",
}


class ComponentVersions(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process. Of Python the first two numbers."""

    python: str
    holdfast: str
    pyarrow: str
    re2: str
    msgspec: str
    fastavro: str = UNKNOWN
    protobuf: str = UNKNOWN
    protoc: str = UNKNOWN


class VersionsDifferError(HoldfastError):
    """An executor has other versions than the driver. Give it the driver's."""

    def __init__(self, driver: ComponentVersions, executor: ComponentVersions) -> None:
        super().__init__(driver, executor)
        self.driver, self.executor = driver, executor

    def __str__(self) -> str:
        differ = [
            name
            for name in self.driver.__struct_fields__
            if self._of(self.driver, name) != self._of(self.executor, name)
        ]
        there = ", ".join(f"{name} {self._of(self.executor, name)}" for name in differ)
        here = ", ".join(f"{name} {self._of(self.driver, name)}" for name in differ)
        return f"an executor has {there}, the driver has {here}: they could map a record to different rows"

    @staticmethod
    def _of(versions: ComponentVersions, name: str) -> str:
        found: str = getattr(versions, name)
        return found


@cache
def installed_versions() -> ComponentVersions:
    """Of this process."""
    packages = {name: _version(package) for name, package in _PACKAGES.items()}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return ComponentVersions(python=python, holdfast=holdfast.__version__, **packages)


def check_versions(driver: ComponentVersions) -> None:
    """On an executor: `VersionsDifferError` if this process has others than the driver."""
    if (found := installed_versions()) != driver:
        raise VersionsDifferError(driver, found)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return UNKNOWN
