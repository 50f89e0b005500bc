"""The two kernels are twins: equal answers to sound and broken input, equal numbers for rules, either one alone will do."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import cast

import pytest
from tests.support.batch_fuzzer import fuzz

from holdfast.log.batches import BatchHeader, BatchRule, Buffer, Record, encode, parse_header
from holdfast.log.batches.kernels import BEST, NATIVE, PURE, BatchKernel, BatchSummary, FaultTuple
from holdfast.log.batches.rules import _TEXTS

SOURCES = Path(__file__).parents[3] / "src" / "_native"


@pytest.mark.parametrize("seed", range(6))
def test_broken_input_gets_equal_answers(seed: int) -> None:
    assert fuzz(seed, 300) > 1_000


class Careless:
    """A kernel that forgets one rule."""

    scan, read, write, columns, keyless = PURE.scan, PURE.read, PURE.write, PURE.columns, PURE.keyless
    summarize, join_blocks, read_chosen = PURE.summarize, PURE.join_blocks, PURE.read_chosen
    pick, pick_extents = PURE.pick, PURE.pick_extents

    @staticmethod
    def check(payload: Buffer, header: tuple[object, ...], contiguous: bool, /) -> FaultTuple | None:
        fault = PURE.check(payload, header, contiguous)
        return None if fault is not None and fault[0] == BatchRule.TRAILING else fault


def test_the_fuzzer_finds_a_kernel_that_forgets_a_rule() -> None:
    with pytest.raises(AssertionError, match="seed 1, round"):
        fuzz(1, 2_000, twin=cast(BatchKernel, Careless))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 110))
def test_much_broken_input_gets_equal_answers(seed: int) -> None:
    fuzz(seed, 5_000)


def test_the_rules_have_the_same_numbers_in_c() -> None:
    in_c = {name: int(number) for name, number in re.findall(r"RULE_(\w+) = (\d+)", (SOURCES / "batch.h").read_text())}
    in_python = {rule.name: rule.value for rule in BatchRule}
    judged_in_python = {"EMPTY", "CRC", "COMPRESSED", "INFLATED_SIZE"}
    assert in_c == {name: number for name, number in in_python.items() if name not in judged_in_python}


def test_every_rule_has_its_words() -> None:
    assert set(_TEXTS) == set(BatchRule)


def test_the_extension_is_built_where_a_compiler_is() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    assert NATIVE is not None or shutil.which(compiler) is None
    assert BEST is (NATIVE or PURE)


def test_without_the_extension_everything_works() -> None:
    program = """
import sys
sys.modules["holdfast._native"] = None  # as if it had not been built
from holdfast.log.batches import *
from holdfast.log.batches import kernels
assert kernels.NATIVE is None and kernels.BEST is kernels.PURE
records = [Record(n, n, b"k", b"v" * 20, (("h", None),)) for n in range(3)]
batch = encode(records, compression="snappy")
(found,) = split_batches(batch, limits=RecordBatchLimits())
validate_records(found)
assert list(decode(found)) == records
assert to_arrow([batch], include_headers=True).num_rows == 3
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_without_pyarrow_everything_but_columns_works() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from holdfast.log.batches import *
assert list(decode(encode([Record(0, 0, None, b"v")]))) == [Record(0, 0, None, b"v")]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_kernel_called_wrongly_raises_and_lives(kernel: BatchKernel) -> None:
    batch = encode([Record(0, 0, b"k", b"v")])
    header = parse_header(batch)
    for call in (
        lambda: kernel.scan("text", True, 1, 1, BatchHeader),  # type: ignore[arg-type]
        lambda: kernel.summarize("text", 0, BatchSummary),  # type: ignore[arg-type]
        lambda: kernel.join_blocks([7], 0, 1, 1, 0, BatchSummary),  # type: ignore[list-item]
        lambda: kernel.join_blocks(7, 0, 1, 1, 0, BatchSummary),  # type: ignore[arg-type]
        lambda: kernel.check(b"", header[:5], True),
        lambda: kernel.read(b"", header[:5], (0, 0, -1), 1, Record),
        lambda: kernel.columns([7], lambda *_: b"", True),  # type: ignore[list-item]
        lambda: kernel.columns(7, lambda *_: b"", True),  # type: ignore[arg-type]
        lambda: kernel.write([7], 0, 61),  # type: ignore[list-item]
        lambda: kernel.write(7, 0, 61),  # type: ignore[arg-type]
        lambda: kernel.write_values([7], None, 0, 61),  # type: ignore[list-item]
        lambda: kernel.write_values([b""], 7, 0, 61),  # type: ignore[arg-type]
        lambda: kernel.write_values(7, None, 0, 61),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            call()
    for call in (
        lambda: kernel.join_blocks([batch], 2, 1, 1, 0, BatchSummary),
        lambda: kernel.join_blocks([batch], -1, 1, 1, 0, BatchSummary),
        lambda: kernel.read(batch[61:], header, (99, 0, -1), 1, Record),
        lambda: kernel.read(batch[61:], header, (-1, 0, -1), 1, Record),
        lambda: kernel.read(batch[61:], header, (0, -1, -1), 1, Record),
        lambda: kernel.write([], -1, 61),
        lambda: kernel.write([], 0, -1),
        lambda: kernel.write_values([], None, -2, 61),
        lambda: kernel.write_values([], None, 0, -1),
    ):
        with pytest.raises(ValueError, match=r"outside the payload|not negative|no such batch"):
            call()


def test_an_error_of_the_inflater_comes_through(kernel: BatchKernel) -> None:
    batch = encode([Record(0, 0, b"k", b"v" * 50)], compression="lz4")

    def inflate(codec: int, payload: memoryview, at: int) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        kernel.columns([batch], inflate, True)
    with pytest.raises(TypeError):
        kernel.columns([batch], lambda *_: None, True)  # type: ignore[arg-type]
