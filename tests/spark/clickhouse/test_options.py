import pytest

from holdfast.spark.clickhouse.options import ClickHouseOptions, parse_options
from holdfast.vocabulary.errors import InvalidError

GIVEN = {"url": "http://127.0.0.1:8123", "table": "events"}


def test_names_are_case_insensitive_and_sparks_own_options_pass() -> None:
    given = {
        "URL": "http://ch",
        "Table": "t",
        "writeid": "w",
        "insertRowsMax": "5",
        "checkpointLocation": "/c",
        "queryname": "q",
    }
    parsed = parse_options(given)
    assert (parsed.write_id, parsed.insert_rows_max, parsed.create_table) == ("w", 5, True)
    assert parse_options({**GIVEN, "createTable": "false"}).create_table is False


@pytest.mark.parametrize(
    ("given", "database", "table"),
    [
        ({"url": "http://ch", "table": "events"}, "default", "events"),
        ({"url": "http://ch/logs", "table": "events"}, "logs", "events"),
        ({"url": "http://ch/logs", "table": "other.events"}, "other", "events"),
        ({"url": "http://ch", "table": "with.dot", "database": "d"}, "d", "with.dot"),
    ],
)
def test_the_database_is_that_of_the_table_the_option_or_the_url(
    given: dict[str, str], database: str, table: str
) -> None:
    parsed = parse_options(given)
    assert (parsed.database_name, parsed.table) == (database, table)


def test_user_and_password_may_hold_any_character_and_are_never_shown() -> None:
    parsed = parse_options({**GIVEN, "user": "a@b", "password": "p/w:d?"})
    assert parsed.dsn == "http://a%40b:p%2Fw%3Ad%3F@127.0.0.1:8123"
    assert "p/w" not in repr(parsed)
    assert "secret" not in repr(parse_options({**GIVEN, "url": "http://u:secret@ch"}))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"url": ""}, "invalid option url '': must be given"),
        ({"table": ""}, "invalid option table '': must be given"),
        ({"url": "tcp://u:secret@h"}, r"invalid option url 'tcp://u:\*\*\*@h'"),
        ({"url": "http://u:secret@h", "user": "v"}, "not in both"),
        ({"batchsize": "1"}, "invalid option 'batchsize': must be one of cluster, createTable, "),
        ({"inlineBytes": "-1"}, "invalid option inlineBytes -1: must be between 0 and 1048576"),
        ({"inlineBytes": "many"}, "invalid inline_bytes 'many'"),
        ({"guarantee": "twice"}, "invalid option guarantee 'twice': must be one of exactly-once, at-least-once"),
        ({"writeNumber": "3"}, "0 or absent without a writeId"),
        ({"scope": "a\nb"}, "printable"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(more: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message) as refused:
        parse_options({**GIVEN, **more})
    assert "secret" not in str(refused.value)


def test_every_option_is_documented() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "how-to" / "spark-to-clickhouse.md").read_text()
    for name in ClickHouseOptions.__slots__:
        first, *rest = name.split("_")
        assert f"| `{first + ''.join(map(str.title, rest))}` |" in page
