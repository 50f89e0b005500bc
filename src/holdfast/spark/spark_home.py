"""A SPARK_HOME without the zipped copy of PySpark, for an engine that runs in this process's own Python.

Spark prepends `python/lib/pyspark.zip` of its home to the path of every Python process it starts. Nothing in a zip is cached as
bytecode, so each of them compiles PySpark again, for most of a second; and planning a Python source or sink starts several. Without
the zip they import what the driver imports: the installed package.

The one rule: where anything is unusual (the operator's own SPARK_HOME, a read-only folder), Spark's own home is used.
"""

import logging
import shutil
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdfast.spark.java import cache_dir

_REQUIRED: Final = ("bin", "jars")
_LINKED: Final = (*_REQUIRED, "data", "sbin")
_log: Final = logging.getLogger(__name__)


def unzipped_spark_home(environment: Mapping[str, str]) -> Path | None:
    """A folder of links to the installed PySpark; None: use Spark's own home."""
    import pyspark

    distribution = Path(pyspark.__file__).resolve().parent
    if environment.get("SPARK_HOME") or not all((distribution / name).is_dir() for name in _REQUIRED):
        return None
    links = {name: distribution / name for name in _LINKED if (distribution / name).is_dir()}
    digest = sha256("\n".join(map(str, links.values())).encode()).hexdigest()[:16]
    home = cache_dir("spark", environment) / digest
    try:
        if not _is_complete(home, links):
            _create(home, links)
    except OSError as failure:
        _log.warning("Spark's Python processes will start slowly: cannot write %s (%s)", home, failure.strerror)
        return None
    return home if _is_complete(home, links) else None


def _is_complete(home: Path, links: Mapping[str, Path]) -> bool:
    return all((home / name).resolve() == target for name, target in links.items())


def _create(home: Path, links: Mapping[str, Path]) -> None:
    """Build it in a temporary folder and rename that; the slower of two processes discards its own."""
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = Path(tempfile.mkdtemp(prefix=".home-", dir=home.parent))
    try:
        for name, target in links.items():
            (temporary / name).symlink_to(target)
        if _is_complete(home, links):
            return  # another process was faster
        if home.exists():
            home.rename(temporary / "damaged")
        temporary.rename(home)
    except OSError:
        if not _is_complete(home, links):
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
