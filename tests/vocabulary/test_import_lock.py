"""Imports beside the loop."""

import importlib
import subprocess
import sys

import pytest

from holdfast.vocabulary.import_lock import hide_module


def test_what_is_hidden_cannot_be_imported_and_can_be_afterwards() -> None:
    sys.modules.pop("colorsys", None)
    with hide_module("colorsys"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("colorsys")
    assert importlib.import_module("colorsys")


def test_what_is_there_already_stays() -> None:
    with hide_module("json"):
        assert importlib.import_module("json") is sys.modules["json"]
    assert "json" in sys.modules


def test_a_server_does_not_import_what_is_for_tests() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from holdfast.kafka.codec import import_kio; import_kio(); import sys; print('hypothesis' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout.strip() == "False"
