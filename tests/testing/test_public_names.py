"""`holdfast.testing` is public: its names exist, are documented, and cost nothing until they are used."""

import subprocess
import sys

import pytest

import holdfast.testing


@pytest.mark.parametrize("name", holdfast.testing.__all__)
def test_a_public_name_exists_and_is_documented(name: str) -> None:
    assert getattr(holdfast.testing, name).__doc__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(holdfast.testing, "nothing")  # noqa: B009 (what `from holdfast.testing import nothing` does)


def test_importing_it_loads_no_engine_and_no_pytest() -> None:
    program = (
        "import sys, holdfast.testing; print([n for n in ('pytest', 'asyncpg', 'grpc', 'obstore') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
