"""docs/serve.md is true: it names every flag, variable and section there is, and its file can be read."""

import re
from pathlib import Path

from holdfast.app.config import CATALOGUE
from holdfast.app.config.catalog import SECTIONS
from holdfast.app.config.sources import SourceValue, from_file
from holdfast.vocabulary.errors import InvalidError

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()


def test_it_has_a_row_for_every_flag() -> None:
    rows = {
        row[0]: row
        for row in re.findall(r"^\| `(--[\w-]+)[^|]*\| `(\w+)` \| `([\w.]+)` \|([^|]*)\|", PAGE, re.MULTILINE)
    }
    flags = {setting.flag: setting for setting in CATALOGUE.values() if setting.flag}
    assert set(rows) == set(flags)
    for flag, setting in flags.items():
        assert rows[flag][1:3] == (setting.variables[0], setting.name)
        if setting.default and setting.kind is not bool:
            assert f"`{setting.default}`" in rows[flag][3]


def test_it_names_every_section() -> None:
    table = PAGE.partition("| section | about |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(SECTIONS)


def test_its_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])
    given = [each for each in from_file(path, shown="node.toml") if isinstance(each, SourceValue)]
    assert {each.name for each in given} >= {"data", "kafka.listen", "logging.format"}
    assert not [each for each in from_file(path, shown="node.toml") if isinstance(each, InvalidError)]
