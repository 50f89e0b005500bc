"""Every method of Java's Admin, called once: what answers, and with which error the others end, is what docs/kafka.md says."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.broker import CHOICE
from tests.support.clients.java import runner
from tests.support.secured_listener import USER, starting_listeners

from holdfast.vocabulary.errors import UnavailableError

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(CHOICE != "holdfast", reason="it is about what Holdfast answers"),
]
PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()
WALK_TIMEOUT_S = 300


def documented() -> dict[str, str]:
    """The outcome of each call: answered, or the name of the error."""
    section = PAGE.partition("## Java's Admin, method by method")[2].partition("\n## ")[0]
    answered, _, refused = section.partition("The others end at once")
    listed = dict.fromkeys(re.findall(r"`([\w ()]+)`", answered.partition("calls are answered")[2]), "answered")
    return {**listed, **dict(re.findall(r"^\| `([\w ()]+)` \| (\w+):", refused, re.MULTILINE))}


def test_every_method_ends_as_documented(tmp_path: Path) -> None:
    def folder(name: str) -> Path:
        made = tmp_path / name
        made.mkdir()
        return made

    with starting_listeners(folder) as listener:
        broker, config = listener("SASL_PLAINTEXT"), tmp_path / "client.properties"
        login = broker.java("SCRAM-SHA-512").replace(f'username="{USER}"', 'username="admin"')
        config.write_text(f"{login}bootstrap.servers={broker.bootstrap}\n")
        try:
            argv = runner.command("conformance.AdminWalk", str(config))
        except UnavailableError as missing:
            pytest.skip(str(missing))
        walked = subprocess.run(argv, capture_output=True, text=True, timeout=WALK_TIMEOUT_S)
    assert walked.returncode == 0, walked.stderr[-3_000:]
    found = dict(line.split("\t") for line in walked.stdout.splitlines())
    assert {name: outcome.partition(":")[0] for name, outcome in found.items()} == documented()
