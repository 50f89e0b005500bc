"""The public names of `holdfast.client` and `holdfast.spark` resolve, and importing the packages loads no heavy library."""

import subprocess
import sys

import pytest

import holdfast.client
import holdfast.spark

HEAVY = ("confluent_kafka", "kio", "numpy", "pandas", "pyarrow", "pyspark")


@pytest.mark.parametrize("package", [holdfast.client, holdfast.spark], ids=["client", "spark"])
def test_every_public_name_resolves(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name).__name__.rpartition(".")[2] == name
        assert name in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["holdfast.client", "holdfast.spark", "holdfast.spark.settings"])
def test_importing_a_package_loads_no_heavy_library(name: str) -> None:
    program = f"import sys, {name}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""
