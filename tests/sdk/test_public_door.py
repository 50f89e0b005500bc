"""`import holdfast`: what it offers, what it costs, and that the words of the issue and of the README run."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.vocabulary import errors

ROOT = Path(__file__).parents[2]


async def test_the_three_lines_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with holdfast.connect("sqlite:///work.db") as hf, hf.session() as session:
        lease = await session.acquire("nightly-report")  # Lease, or Held: who has it
        await lease.commit(holdfast.Put("report/done", b"true"))  # FencedError once somebody newer owns it
    async with holdfast.connect("sqlite:///work.db") as hf:
        done = await hf.get("report/done")
    assert done is not None
    assert done.value == b"true"
    assert (tmp_path / "work.db").exists()


def test_every_name_of_all_is_there_and_has_a_docstring() -> None:
    for name in holdfast.__all__:
        found = getattr(holdfast, name)
        if inspect.isclass(found) or inspect.isfunction(found) or inspect.ismodule(found):
            assert inspect.getdoc(found), name
    assert set(holdfast.__all__) <= set(dir(holdfast))
    assert list(holdfast.__all__) == sorted(holdfast.__all__)


def test_a_type_checker_sees_the_same_names_as_the_program() -> None:
    tree = ast.parse(Path(holdfast.__file__ or "").read_text())
    (typed,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    names = {alias.name for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names | {"__version__"} == set(holdfast.__all__)


def test_every_error_class_is_public() -> None:
    ours = {name for name, found in vars(errors).items() if inspect.isclass(found)}
    assert ours <= set(holdfast.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        holdfast.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_the_import_alone_loads_nothing_of_ours() -> None:
    code = "import sys, holdfast; print([name for name in sys.modules if name.startswith('holdfast.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_lease_loads_no_server_and_no_driver() -> None:
    code = "import sys, holdfast; holdfast.connect; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {name for name in loaded if name.startswith(("holdfast.log", "holdfast.gateways", "holdfast.spark"))}
    assert not loaded & {"asyncpg", "grpc", "redis", "pyspark", "litestar", "kio"}


def test_the_smallest_example_of_the_readme_is_short() -> None:
    blocks = (ROOT / "README.md").read_text().split("```python\n")[1:]
    (example,) = [block.split("```")[0] for block in blocks if "holdfast.connect(" in block]
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) <= 8  # tests/docs/test_readme.py runs it


async def test_an_open_store_is_used_as_it_is_and_left_open() -> None:
    async with holdfast.connect("memory:") as outer:
        async with holdfast.connect(outer.store) as hf, hf.session() as session:
            assert await session.acquire("a")
        assert await outer.get("lease/epoch/a") is not None


async def test_clock_and_random_source_are_one_value() -> None:
    runtime = holdfast.Runtime.fake(seed=3)
    async with holdfast.connect("memory:", runtime=runtime) as hf, hf.session("ann") as session:
        assert hf.runtime is runtime
        assert isinstance(await session.acquire("a"), holdfast.Lease)


async def test_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(
        holdfast.InvalidError, match="invalid store URL 'mysql://x': must be one of memory:, sqlite:///"
    ):
        async with holdfast.connect("mysql://x"):
            pass
