"""Java programs for tests and benchmarks: artifacts with everything they depend on, fetched by `mvn` and kept.

`mvn` knows where artifacts come from; nothing here does. One folder of jars per name, made whole or not at all: several
processes may ask for the same one at once. What was fetched once is found again without starting anything.
"""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import UnavailableError

FETCH_TIMEOUT_S: Final = 600

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
)
_ALONE: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_LISTING: Final = "artifacts.txt"

_failed: dict[str, str] = {}  # name → why: offline stays offline, and finding that out again takes long


def fetch_jars(name: str, artifacts: Sequence[str], *, cache: Path | None = None, alone: bool = False) -> list[Path]:
    """The jars of `artifacts` ("group:artifact:version") and of all they need, in the folder `name` of the cache.

    With `alone`, of what is named and of nothing else. Raises UnavailableError with the reason where they cannot be had.
    """
    cache = default_cache() if cache is None else cache
    folder = cache / name
    if (found := _kept(folder, artifacts)) is not None:
        return found
    if name in _failed:
        raise UnavailableError("maven", _failed[name])
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{name}.lock"):
        if (found := _kept(folder, artifacts)) is not None:  # somebody else fetched it while we waited
            return found
        try:
            _fetch(folder, artifacts, alone)
        except UnavailableError as error:
            _failed[name] = error.reason
            raise
    found = _kept(folder, artifacts)
    assert found is not None
    return found


def default_cache() -> Path:
    """`.cache/maven` in the checkout this file is part of, or where we are when it is part of none."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "pyproject.toml").exists():
            return folder / ".cache" / "maven"
    return Path.cwd() / ".cache" / "maven"


def _kept(folder: Path, artifacts: Sequence[str]) -> list[Path] | None:
    try:
        listing = (folder / _LISTING).read_text()
    except FileNotFoundError:
        return None
    return sorted(folder.glob("*.jar")) if listing.split() == list(artifacts) else None


def _fetch(folder: Path, artifacts: Sequence[str], alone: bool) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise UnavailableError("maven", "there is no program mvn")
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as made:
        jars = Path(made) / "jars"
        pom = Path(made) / "pom.xml"
        without = _ALONE if alone else ""
        listed = "\n".join(_DEPENDENCY.format(*each.split(":"), without) for each in artifacts)
        pom.write_text(_POM.format(dependencies=listed))
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        argv = [mvn, "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *copy]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise UnavailableError("maven", f"mvn did not finish in {FETCH_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise UnavailableError("maven", f"mvn failed, {_why(done.stdout + done.stderr)}")
        (jars / _LISTING).write_text("\n".join(artifacts))
        shutil.rmtree(folder, ignore_errors=True)  # of other artifacts than are wanted now
        jars.rename(folder)


def _why(output: str) -> str:
    errors = [line for line in output.splitlines() if line.startswith("[ERROR]")]
    return (errors[0] if errors else output[-500:]).strip()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
