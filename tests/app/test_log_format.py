"""Log lines: a sentence and its facts, for people or for programs."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.app.log_format import configure_logging


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    before = (root.handlers[:], root.level, ours.level)
    yield logging.getLogger("holdfast.some.part")
    root.handlers[:], level, ours_level = before
    root.setLevel(level)
    ours.setLevel(ours_level)
    logging.captureWarnings(False)


def test_text_is_a_time_a_level_a_name_a_sentence_and_its_facts(logger: logging.Logger) -> None:
    out = io.StringIO()
    configure_logging("text", "info", stream=out)
    logger.info("partition %d opened", 3, extra={"topic": "orders", "why": "it is ours", "empty": ""})
    time, _, rest = out.getvalue().partition(" ")
    assert time.endswith("Z")
    assert rest == 'INFO holdfast.some.part: partition 3 opened topic=orders why="it is ours" empty=""\n'


def test_json_is_one_object_per_line_whatever_is_in_it(logger: logging.Logger) -> None:
    out = io.StringIO()
    configure_logging("json", "info", stream=out)
    logger.warning("two\nlines", extra={"path": io, "count": 3})
    try:
        raise ValueError("wrong")
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["message"] == "two\nlines"
    assert first["level"] == "warning"
    assert first["logger"] == "holdfast.some.part"
    assert first["fields"]["count"] == 3
    assert "io" in first["fields"]["path"]
    assert "ValueError: wrong" in second["exception"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_whatever_a_client_sent_a_line_stays_one_line_and_ends(logger: logging.Logger, form: str) -> None:
    out = io.StringIO()
    configure_logging(form, "info", stream=out)
    logger.info("group %s", "g\r\n2026-01-01T00:00:00.000Z ERROR holdfast: forged\u2028\x1b[2J")
    logger.info("group %s", "g" * 1_000_000)
    first, second = out.getvalue().removesuffix("\n").split("\n")
    assert "forged" in first
    assert "\x1b" not in first
    assert len(second) < 5_000
    assert "(1000006 characters)" in second


def test_levels_are_ours_to_choose_and_others_are_quiet(logger: logging.Logger) -> None:
    out = io.StringIO()
    configure_logging("text", "debug", stream=out)
    logger.debug("ours")
    logging.getLogger("somebody.else").info("theirs")
    logging.getLogger("somebody.else").warning("trouble")
    lines = out.getvalue().splitlines()
    assert [line.partition(": ")[2] for line in lines] == ["ours", "trouble"]
