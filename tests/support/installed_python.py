"""A Python in a folder of its own, with Holdfast installed in it as a wheel would be, and no source tree on its path."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.support.spark_session import ROOT

INSTALL_TIMEOUT_S = 120


def install_python(folder: Path) -> Path:
    """Make it; its interpreter. Other packages are those of the Python that runs the tests."""
    venv.create(folder, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    argv = [sys.executable, "setup.py", "-q", "egg_info", "-e", str(folder), "build_py", "--build-lib", str(site)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
    (site / "other_packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def environment_without_python() -> dict[str, str]:
    """The environment of a process in which no Python was activated."""
    kept = {name: value for name in ("HOME", "JAVA_HOME") if (value := os.environ.get(name))}  # noqa: TID251 (a child's)
    return {**kept, "PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}
