"""`holdfast doctor spark`: what is missing is found before Spark says something else about it."""

import json
import os
import sys
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.installed_python import environment_without_python, install_python

from holdfast.cli.main import main
from holdfast.spark.doctor import Finding, diagnose

HERE = dict(os.environ)  # noqa: TID251 (what a child is given)


def found(environment: dict[str, str], **more: str) -> dict[str, Finding]:
    return {each.check: each for each in diagnose(environment, **more)}


def test_a_python_that_has_everything_passes() -> None:
    findings = found({**HERE, "PYSPARK_PYTHON": sys.executable})
    assert all(each.ok for each in findings.values()), findings
    assert "4.3" in findings["pyspark"].detail
    assert "PYSPARK_PYTHON" in findings["worker-python"].detail


def test_an_environment_that_is_not_activated_passes_where_the_wheel_is_installed(tmp_path: Path) -> None:
    python = str(install_python(tmp_path / "env"))
    findings = found({**environment_without_python(), "HOME": str(tmp_path)}, python=python)
    assert all(each.ok for each in findings.values()), findings


def test_a_worker_python_without_pyspark_is_named_with_what_helps(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    findings = found({"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "HOLDFAST_NO_PYSPARK_HOOK": "1"})
    assert findings["worker-python"].ok
    assert "No module named 'pyspark'" in findings["worker-imports"].detail
    assert f"PYSPARK_PYTHON={sys.executable}" in findings["worker-imports"].detail
    assert "DATA_SOURCE_NOT_FOUND" in findings["data-source"].detail


def test_a_worker_python_that_is_none_is_an_answer() -> None:
    findings = found({**HERE, "PYSPARK_PYTHON": "/nowhere/python"})
    assert [name for name, each in findings.items() if not each.ok] == [
        "worker-python",
        "worker-imports",
        "data-source",
    ]
    assert "/nowhere/python (PYSPARK_PYTHON) is not a program" in findings["worker-python"].detail


def test_brokers_that_answer_are_ok_and_others_are_not(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert main(["doctor", "spark", "--bootstrap", broker.bootstrap, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["check"] == "brokers"
    assert "this machine sees" in lines[-1]["detail"]
    assert main(["doctor", "spark", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "no broker answered within 3 s" in capsys.readouterr().out
