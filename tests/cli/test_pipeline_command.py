"""`holdfast pipeline` as people meet it, against a real server with a real broker, store and ClickHouse."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import Run
from tests.support.server_process import ServeProcess, create_topic, environment, produce, started

from holdfast.cli.pipeline.file import read_pipeline_file
from holdfast.cli.pipeline.rewind import parse_source_position
from holdfast.cli.server_url import server_url
from holdfast.client.http_client import HttpClient, ProblemError
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline.yaml"
ORDERS = [
    json.dumps({"id": n, "at": f"2026-11-15T08:30:{n:02d}Z", "user": {"name": "Ann"}, "total": f"{n}.50"})
    for n in range(12)
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A server that speaks HTTP and runs no pipelines."""
    made = ServeProcess(tmp_path_factory.mktemp("server"), "--roles", "api,agent")
    with started(made):
        yield made


@pytest.fixture
def name() -> str:
    return f"orders-{SystemRandom().token()[:8]}"


@pytest.fixture
def pipeline(run: Run, node: ServeProcess, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `holdfast pipeline …`, which finds the server through the environment."""
    monkeypatch.setenv("HOLDFAST_HTTP_URL", node.http)
    return lambda *argv, **more: run("pipeline", *argv, **more)


@pytest.fixture
def file(tmp_path: Path, node: ServeProcess, clickhouse: ClickHouseServer, name: str) -> Path:
    """A file without a mapping, over a topic with records."""
    create_topic(node.kafka, name, 2)
    produce(node.kafka, name, *ORDERS)
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"name: {name}\nsource: {{topic: {name}}}\nsink: {{dsn: '{clickhouse.url}'}}\n")
    return path


def test_from_a_file_to_a_started_pipeline(pipeline: Run, file: Path, name: str, clickhouse: ClickHouseServer) -> None:
    made = pipeline("create", "-f", str(file), "--infer", "--start", "--json")
    assert made.code == 0, made.err
    (row,) = made.rows
    assert (row["name"], row["recipe"], row["state"]["desired"], row["problems"]) == (name, 1, "started", [])
    again = pipeline("create", "-f", str(file))
    assert (again.code, "already exists" in again.err) == (2, True)
    assert pipeline("apply", "-f", str(file)).code == 0, "what is there already stays"
    listed = {each["name"]: each for each in pipeline("list", "--json").rows}
    assert listed[name]["state"] == "waiting"
    assert name in pipeline("list").text
    status = pipeline("status", name)
    assert (status.code, "no worker is running" in status.text) == (0, True)
    assert pipeline("scale", name, "3", "--json").rows[0]["state"]["replicas"] == 3
    assert pipeline("stop", name).text.strip() == f"{name}: stopped, 3 replicas"
    shown = pipeline("show", name).text
    assert clickhouse.password not in shown
    assert "***" in shown
    assert pipeline("delete", name, "--yes").code == 0
    assert pipeline("show", name).code == 2


def test_what_show_prints_apply_takes(pipeline: Run, file: Path, name: str, tmp_path: Path) -> None:
    assert pipeline("apply", "-f", str(file), "--infer").code == 0
    before = pipeline("show", name, "--json").rows[0]
    kept = tmp_path / "kept.yaml"
    kept.write_bytes(pipeline("show", name).out)
    assert pipeline("apply", "-f", str(kept)).code == 0
    after = pipeline("show", name, "--json").rows[0]
    assert after == before, "with its hidden password sent back, nothing has changed"


def test_what_is_gone_from_the_file_is_gone_and_the_changes_are_shown_first(
    pipeline: Run, file: Path, name: str
) -> None:
    bare = file.read_text()
    more = f"description: all\n{bare}filters: {{enabled: true, expression: 'id > 3'}}\ndrift: {{unknownFields: dlq}}\n"
    file.write_text(more.replace("sink: {", "sink: {batchSize: 500, "))
    assert pipeline("apply", "-f", str(file), "--infer").code == 0
    before = pipeline("show", name, "--json").rows[0]
    file.write_text(bare)
    shown = pipeline("apply", "-f", str(file), "--dry-run")
    assert shown.code == 0
    assert [line for line in shown.text.splitlines() if "batchSize" in line] == ["~ sink.batchSize: 500 → 100000"]
    assert "~ filters.expression: 'id > 3' → ''" in shown.text
    assert "~ drift.unknownFields: 'dlq' → 'ignore'" in shown.text
    assert "~ description: 'all' → ''" in shown.text
    assert pipeline("show", name, "--json").rows[0] == before, "a dry run changes nothing"
    applied = pipeline("apply", "-f", str(file))
    assert applied.text.startswith(shown.text), "the changes, and then what was done"
    after = pipeline("show", name, "--json").rows[0]["parts"]
    assert (after["sink"]["batchSize"], after["filters"]["expression"], after["drift"]["unknownFields"]) == (
        100_000,
        "",
        "ignore",
    )
    assert after["mapping"] == before["parts"]["mapping"], "an inferred mapping is in no file, and stays"
    again = pipeline("apply", "-f", str(file))
    assert (again.code, again.text.splitlines()[0].split(":")[0]) == (0, f"{name} unchanged")


def test_a_changed_password_is_named_and_not_shown(pipeline: Run, file: Path, name: str) -> None:
    assert pipeline("apply", "-f", str(file)).code == 0
    user, _, rest = file.read_text().partition("http://")[2].partition(":")
    password = rest.partition("@")[0]
    file.write_text(file.read_text().replace(f":{password}@", ":other@"))
    shown = pipeline("apply", "-f", str(file), "--dry-run").text
    assert (shown.splitlines(), "other" in shown, user != "") == (["~ sink: a secret"], False, True)


def test_a_pipeline_that_cannot_be_created_as_a_whole_is_not_created(pipeline: Run, file: Path, name: str) -> None:
    file.write_text(file.read_text() + "filters: {enabled: true, expression: 'id >'}\n")
    assert pipeline("create", "-f", str(file)).code == 2
    assert pipeline("show", name).code == 2
    nowhere = f"name: {name}\nsource: {{topic: nowhere-{name}}}\nsink: {{table: t}}\n"
    file.write_text(nowhere)
    assert pipeline("create", "-f", str(file), "--infer").code != 0, "nothing can be inferred"
    assert pipeline("show", name).code == 2


def test_a_proposal_is_shown_saved_and_previewed(pipeline: Run, file: Path, name: str, tmp_path: Path) -> None:
    assert pipeline("create", "-f", str(file)).code == 0
    proposed = pipeline("infer", name, "--json").rows[0]
    assert [each["column"] for each in proposed["mapping"]["columns"]] == ["id", "at", "user_name", "total"]
    saved = pipeline("infer", name, "--save")
    assert (saved.code, "user_name" in saved.text, "saved" in saved.text) == (0, True, True)
    preview = pipeline("preview", name, "--limit", "5", "--json").rows[0]
    assert (preview["sampled"], len(preview["rows"])) == (5, 5)
    edited = tmp_path / "edited.yaml"
    edited.write_text("filters: {enabled: true, expression: 'id > 100'}\n")
    assert pipeline("preview", name, "-f", str(edited), "--json").rows[0]["filtered"] == 12
    text = pipeline("preview", name)
    assert (text.code, "CREATE TABLE" in text.text) == (0, True)
    checked = pipeline("validate", name, "--json")
    assert (checked.code, [each["what"] for each in checked.rows]) == (0, ["kafka", "clickhouse", "clickhouse-table"])


def test_the_table_is_created_and_compared(pipeline: Run, file: Path, name: str, clickhouse: ClickHouseServer) -> None:
    assert pipeline("apply", "-f", str(file), "--infer").code == 0
    before = pipeline("table", name, "--diff")
    assert (before.code, "does not exist" in before.text) == (0, True)
    made = pipeline("table", name, "--json")
    assert (made.code, made.rows[0]["exists"]) == (0, True)
    table = pipeline("show", name, "--json").rows[0]["parts"]["sink"]["table"]
    clickhouse.query(f"ALTER TABLE default.{table} DROP COLUMN user_name")
    after = pipeline("table", name, "--diff")
    assert "ADD COLUMN IF NOT EXISTS `user_name`" in after.text


def test_a_preview_is_vertical_and_infer_says_what_it_could_not_read(
    pipeline: Run, file: Path, name: str, node: ServeProcess
) -> None:
    produce(node.kafka, name, "no json", "[1]")
    assert pipeline("create", "-f", str(file)).code == 0
    proposed = pipeline("infer", name, "--save")
    assert "not read: 2 of the sampled records are no JSON objects" in proposed.text + proposed.err
    shown = pipeline("preview", name, "--limit", "3").text
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  id")] == ["id"] * shown.count("\n  id")
    assert "│" not in shown.partition("CREATE TABLE")[0]


def test_a_migration_is_shown_and_then_run(pipeline: Run, file: Path, name: str, clickhouse: ClickHouseServer) -> None:
    assert pipeline("create", "-f", str(file), "--infer").code == 0
    assert pipeline("migrate", name).text == f"{name}: tables are up to date\n"
    table = pipeline("show", name, "--json").rows[0]["parts"]["sink"]["table"]
    clickhouse.query(
        f"CREATE TABLE default.{table} (id Int64, _generation UInt32, _topic LowCardinality(String), _partition UInt32, "
        "_offset UInt64) ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
    )
    shown = pipeline("migrate", name).text
    assert shown.startswith(f"ALTER TABLE `default`.`{table}` ADD COLUMN IF NOT EXISTS `_pipeline`")
    assert shown.endswith("Nothing was run: pass --yes to run them.\n")
    assert pipeline("migrate", name, "--json").rows[0]["applied"] is False
    assert pipeline("migrate", name, "--yes").text.endswith(f"{name}: tables migrated\n")
    assert pipeline("migrate", name).text == f"{name}: tables are up to date\n"


def test_a_rewind_a_backfill_and_the_dlq(pipeline: Run, file: Path, name: str) -> None:
    assert pipeline("apply", "-f", str(file), "--infer").code == 0
    begun = pipeline("rewind", name, "--to", "0=3", "--json").rows[0]
    assert (begun["generation"]["number"], begun["generation"]["starts"]["0"]) == (2, 3)
    filled = pipeline("backfill", name, "--from", "earliest", "--to", "0=5", "--json").rows[0]
    assert filled["generation"]["ends"] == {"0": 5}
    assert pipeline("backfill", name, "--give-up", "3").code == 0
    wrong = pipeline("rewind", name, "--to", "yesterday")
    assert (wrong.code, "earliest, latest" in wrong.err) == (2, True)
    assert pipeline("dlq", name, "--json").rows == []
    assert "none" in pipeline("dlq", name).text
    assert pipeline("dlq", name, "--count", "--json").rows[0]["total"] == 0
    assert pipeline("dlq", name, "--replay", "--json").rows[0]["stored"] == 0


def test_what_is_invalid_is_refused_with_its_line_and_leaves_nothing_behind(
    pipeline: Run, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(f"name: {name}\nsource: {{topic: t}}\nsink: {{table: t, batchSize: 0}}\n")
    refused = pipeline("create", "-f", str(path))
    assert refused.code == 2
    assert f"{path}:3: invalid sink.batchSize 0: must be between 1 and" in refused.err
    assert pipeline("show", name).code == 2
    missing = pipeline("status", "nothing-of-this-name")
    assert (missing.code, "does not exist" in missing.err) == (2, True)
    path.write_text(f"name: {name}\nsource: {{topic: t}}\n")
    assert pipeline("apply", "-f", str(path)).code == 0
    start = pipeline("start", name)
    assert (start.code, "sink: not saved yet" in start.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\nsauce: {}\n", "sauce"),
        ("- a\n", "a pipeline"),
        ("source: {topic: t}\n", "--name"),
        ("name: x\nsource: topic\n", "an object"),
        ("name: [\n", "YAML"),
        ("name: !!python/object/apply:os.system ['true']\n", "YAML"),
        ("name: x\nstate: started\n", "an object"),
    ],
)
def test_a_wrong_file_is_refused_before_anybody_is_asked(run: Run, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    done = run("pipeline", "create", "-f", str(path), "--http", "127.0.0.1:1")
    assert (done.code, says in done.err) == (2, True), done.err


def test_every_mistake_of_a_file_is_reported_at_once_and_once_with_its_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        """\
name: x
sauce: {}
source:
  topic: orders
  colour: red
sink:
  batchSize: 0
  batchBytes: 1
mapping:
  columns:
  - {fieldPath: a, column: a, type: Bar, extra: 1}
  - {fieldPath: b, column: b, type: Foo}
state: started
"""
    )
    done = run("pipeline", "create", "-f", str(path), "--http", "127.0.0.1:1")
    assert done.code == 2
    lines = done.err.splitlines()[1:]
    assert [int(line.partition(".yaml:")[2].partition(":")[0]) for line in lines] == [2, 5, 7, 8, 11, 11, 12, 13], (
        done.err
    )
    assert "unknown key 'sauce': did you mean source?" in lines[0]
    assert "unknown field source.colour" in lines[1]
    assert "columns[0].type" in lines[4]
    assert "unknown field mapping.columns[0].extra" in lines[5]
    assert "columns[1].type" in lines[6]


def test_files_may_be_json_toml_or_standard_input(tmp_path: Path, run: Run) -> None:
    (tmp_path / "p.json").write_text('{"name": "a", "source": {"topic": "t"}, "sql": "SELECT 1"}')
    (tmp_path / "p.toml").write_text('name = "a"\n[source]\ntopic = "t"\n')
    assert read_pipeline_file(str(tmp_path / "p.json")).parts == {"source": {"topic": "t"}, "sql": {"sql": "SELECT 1"}}
    assert read_pipeline_file(str(tmp_path / "p.toml")).parts == {"source": {"topic": "t"}}
    (tmp_path / "p.yaml").write_text("name: a\nsource: {topic: t, start: 2026-11-15T00:00:00Z}\n")
    assert read_pipeline_file(str(tmp_path / "p.yaml")).parts["source"]["start"] == "2026-11-15T00:00:00Z"
    assert run("pipeline", "create", "-f", str(tmp_path / "none.yaml")).code == 2
    assert run("pipeline", "create", "-f", "-", "--http", "127.0.0.1:1", stdin=b"name: a\n").code == 3


def test_the_example_is_a_complete_pipeline(pipeline: Run) -> None:
    made = pipeline("apply", "-f", str(EXAMPLE), "--name", "from-the-example", "--json")
    assert made.code == 0, made.err
    assert (made.rows[0]["recipe"], made.rows[0]["problems"]) == (1, [])


def test_nobody_there_is_unavailable_and_no_trace(run: Run) -> None:
    done = run("pipeline", "list", "--http", "127.0.0.1:1")
    assert (done.code, "is `holdfast serve` running?" in done.err) == (3, True)
    assert run("pipeline", "delete", "x", "--http", "127.0.0.1:1").code == 2, "no terminal to ask on"
    for url in ("ftp://x", "http://a..b", f"http://{'a' * 64}", "off", "http://", "http://user@host", "http://h:x"):
        assert run("pipeline", "list", "--http", url).code == 2


def test_a_servers_words_cannot_command_a_terminal(node: ServeProcess) -> None:
    with pytest.raises(ProblemError) as refused:
        HttpClient(node.http).get("/api/pipelines/%1b%5b31m")
    assert "\x1b" not in str(refused.value)


def test_where_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_HTTP_URL", raising=False)
    assert server_url("") == "http://127.0.0.1:8080"
    monkeypatch.setenv("HOLDFAST_HTTP_URL", "0.0.0.0:9999")
    assert server_url("") == "http://127.0.0.1:9999"
    assert server_url("https://holdfast.example/base") == "https://holdfast.example/base"


def test_positions() -> None:
    assert parse_source_position("latest", "--to") == "latest"
    assert parse_source_position("0=120, 1=80", "--to") == {"0": 120, "1": 80}
    # Sent as it is: a time without a zone is UTC for the server, wherever the command runs.
    for time in ("2026-03-01T12:00:00", "2026-03-01", "2026-03-01T12:00:00Z"):
        assert parse_source_position(time, "--to") == time
    with pytest.raises(InvalidError):
        parse_source_position("0=x", "--to")


def test_status_is_watched_until_it_is_interrupted(node: ServeProcess, file: Path, name: str) -> None:
    env = {**environment(), "HOLDFAST_HTTP_URL": node.http}
    told: list[Any] = [sys.executable, "-m", "holdfast", "pipeline"]
    subprocess.run([*told, "create", "-f", str(file)], env=env, check=True, capture_output=True, timeout=60)
    with subprocess.Popen([*told, "status", name, "--watch", "--json"], env=env, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        seen = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(2)
        assert watching.wait(30) == 130
    assert [each["name"] for each in seen] == [name, name]


def test_the_commands_import_no_server() -> None:
    code = (
        "import sys, holdfast.cli.main as m; m.main(['pipeline', 'list', '--http', '127.0.0.1:1'])\n"
        "print([n for n in ('litestar', 'yaml', 'confluent_kafka', 'pyarrow', 'holdfast.app') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_pipeline_is_exported_or_it_is_said_what_is_missing(
    pipeline: Run, file: Path, name: str, clickhouse: ClickHouseServer, tmp_path: Path
) -> None:
    assert pipeline("apply", "-f", str(file), "--infer").code == 0
    folder = tmp_path / "project"
    exported = pipeline("export", "--sdp", name, "--output", str(folder))
    assert (exported.code, "differs: rows go to the table " in exported.text) == (0, True)
    assert (folder / "spark-pipeline.yml").read_text().endswith("include: transformations/**\n")
    (code,) = (path.read_text() for path in (folder / "transformations").iterdir())
    assert "holdfast.clickhouse" in code
    assert clickhouse.password not in code
    assert pipeline("export", "--sdp", name, "--output", str(folder)).code == 2, "it does not overwrite"
