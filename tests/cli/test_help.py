"""The command line as a whole: every command has --json, help and a home in the overview."""

import argparse
from collections.abc import Iterator

import pytest
from tests.support.command_line import Run

from holdfast.cli.main import COMMAND_MODULES, COMMANDS, build_parser, main

# They print the records, rows or lines they are asked for, until they are stopped.
WITHOUT_JSON = {"serve", "clickhouse serve"}


def leaves(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not found:
        yield path, parser
    for action in found:
        for name, child in action.choices.items():
            yield from leaves(child, f"{path} {name}".strip())


def families(parser: argparse.ArgumentParser) -> list[str]:
    [commands] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return [
        name
        for name, child in commands.choices.items()
        if any(isinstance(each, argparse._SubParsersAction) for each in child._actions)
    ]


def test_every_command_has_json() -> None:
    commands = dict(leaves(build_parser()))
    assert len(commands) > 30
    without = {name for name, parser in commands.items() if "--json" not in parser._option_string_actions}
    assert without == WITHOUT_JSON


def test_every_option_and_argument_is_explained() -> None:
    silent = [
        f"{name} {'/'.join(action.option_strings) or action.dest}"
        for name, parser in leaves(build_parser())
        for action in parser._actions
        if action.option_strings and not action.help and not action.choices
    ]
    assert silent == []


def test_without_a_command_it_lists_them_all(run: Run) -> None:
    done = run()
    assert done.code == 0
    assert done.text == run_help(run)
    assert {name for group in COMMANDS.values() for name in group} == set(COMMAND_MODULES)
    for name in COMMAND_MODULES:
        assert f"\n  {name} " in done.text


def run_help(run: Run) -> str:
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    return build_parser([]).format_help()


@pytest.mark.parametrize("family", families(build_parser()))
def test_a_family_without_a_subcommand_lists_them(run: Run, family: str) -> None:
    done = run(family)
    assert done.code == 0
    assert "COMMAND" in done.text


def test_a_misspelt_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topik"])
    assert ended.value.code == 2
    assert "topic" in capsys.readouterr().err
