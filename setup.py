"""What of the build is code: the optional C extension, and the `.pth` file. Everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

SOURCES = Path("src/_native")
FLAGS = [] if sys.platform == "win32" else ["-std=c11", "-O3", "-fvisibility=hidden"]

PYSPARK_HOOK = "import _holdfast_pyspark; _holdfast_pyspark.install()\n"


class BuildPyWithHook(build_py):
    """Beside the packages, a `.pth` file: Python runs its line at start. An editable install has none."""

    def run(self) -> None:
        """Build the packages, then write the file."""
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, "holdfast_pyspark.pth").write_text(PYSPARK_HOOK, encoding="utf-8")


setup(
    cmdclass={"build_py": BuildPyWithHook},
    ext_modules=[
        Extension(
            "holdfast._native",
            sources=sorted(path.as_posix() for path in SOURCES.glob("*.c")),
            depends=sorted(path.as_posix() for path in SOURCES.glob("*.h")),
            extra_compile_args=FLAGS,
            optional=True,  # without a compiler the twin in Python does the work: holdfast.log.batches.pure
        )
    ],
)
