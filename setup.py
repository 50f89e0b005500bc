"""The one part of the build that is code: the optional C extension. Everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup

SOURCES = Path("src/_native")
FLAGS = [] if sys.platform == "win32" else ["-std=c11", "-O3", "-fvisibility=hidden"]

setup(
    ext_modules=[
        Extension(
            "holdfast._native",
            sources=sorted(path.as_posix() for path in SOURCES.glob("*.c")),
            depends=sorted(path.as_posix() for path in SOURCES.glob("*.h")),
            extra_compile_args=FLAGS,
            optional=True,  # without a compiler the twin in Python does the work: holdfast.log.batches.pure
        )
    ]
)
