"""docs/grpc.md is true: its program runs, and it names every rpc, every reason and every setting."""

import re
from pathlib import Path
from typing import Any

from tests.support.server_process import BROKER_ONLY, ServeProcess, started

from holdfast.app.config import CATALOGUE
from holdfast.gateways.grpc.errors import CODES
from holdfast.gateways.grpc.server import SERVICES

PAGE = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()


def test_its_program_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    node = ServeProcess(tmp_path, *BROKER_ONLY, "--grpc", "127.0.0.1:0")
    names: dict[str, Any] = {}
    with started(node):
        exec(code.replace("127.0.0.1:50051", node.grpc), names)
    assert sorted(names["offsets"]) == list(range(100))
    assert sorted(names["values"], key=int) == [b"%d" % number for number in range(100)]
    assert names["committed"].version


def test_it_names_every_rpc_reason_and_setting() -> None:
    for service in SERVICES.values():
        (row,) = re.findall(rf"^\| `{service.name}` \| (.*) \|$", PAGE, re.MULTILINE)
        assert {method.name for method in service.methods} <= set(re.findall(r"\w+", row))
    assert {reason for _, (_, reason) in CODES} <= set(re.findall(r"[A-Z_]{4,}", PAGE))
    settings = {name for name in CATALOGUE if name.startswith("grpc.")}
    assert settings == set(re.findall(r"`(grpc\.\w+)`", PAGE))
