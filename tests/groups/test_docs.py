"""docs/groups.md is true: its table of settings is the settings."""

import re
from dataclasses import fields
from pathlib import Path

from holdfast.groups.settings import GroupSettings

UNITS = {"KiB": 1024, "MiB": 1024 * 1024, "days": 86_400_000}


def test_the_table_of_settings_is_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "groups.md").read_text().partition("## Settings")[2]
    documented: dict[str, int] = {}
    for names, values in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", text, re.MULTILINE):
        for name, value in zip(re.findall(r"`(\w+)`", names), values.split(","), strict=True):
            digits, unit = re.fullmatch(r"\s*([\d ]*\d) ?(\w*)\s*", value).groups()  # type: ignore[union-attr]
            documented[name] = int(digits.replace(" ", "")) * UNITS.get(unit, 1)
    settings = GroupSettings()
    assert documented == {field.name: getattr(settings, field.name) for field in fields(settings)}
