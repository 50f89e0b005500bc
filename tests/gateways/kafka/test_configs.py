"""Settings in Kafka's names: described, replaced, changed one by one; what is not offered says so."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import Admin, admin_of, code, versions

from holdfast.gateways.kafka.config_names import (
    IGNORED,
    MAPPED,
    config_text,
    read_settings,
    topic_config_entries,
)
from holdfast.kafka.enums import AlterConfigOperation, ConfigResourceType, ConfigType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.topic_config import NAMES, TopicConfig
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB


def resource(name: str, kind: int = ConfigResourceType.TOPIC, **given: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": None, **given}


def setting(values: Mapping[str, str | None]) -> list[dict[str, Any]]:
    return [
        {"name": name, "value": value, "config_operation": AlterConfigOperation.SET} for name, value in values.items()
    ]


async def described(admin: Admin, name: str = "orders") -> dict[str, Any]:
    answer = await admin.ask("DescribeConfigs", resources=[resource(name)])
    return {each.name: each for each in answer.results[0].configs}


# ── the table ──


def test_every_setting_of_a_topic_has_a_name_of_kafkas() -> None:
    assert {mapped.field for mapped in MAPPED.values()} == set(NAMES)
    assert not set(MAPPED) & IGNORED


@pytest.mark.parametrize(
    ("name", "value", "field", "read"),
    [
        ("retention.ms", "1000", "retention_ms", 1_000),
        ("retention.ms", "-1", "retention_ms", -1),
        ("retention.ms", str(2**63 - 1), "retention_ms", 1_000 * 365 * 86_400_000),
        ("segment.bytes", str(1 << 30), "roll_bytes", 100 * MIB),
        ("segment.bytes", "16384", "roll_bytes", MIB),
        ("segment.bytes", str(50 * MIB), "roll_bytes", 50 * MIB),
        ("segment.ms", "1", "roll_ms", 100),
        ("cleanup.policy", "delete, compact", "cleanup_policy", "compact,delete"),
        ("message.timestamp.type", "LogAppendTime", "message_timestamp_type", "append_time"),
        ("message_timestamp_type", "append_time", "message_timestamp_type", "append_time"),
        ("unclean.leader.election.enable", "TRUE", "unclean_takeover", True),
        ("holdfast.unclean.takeover", "true", "unclean_takeover", True),
        ("holdfast.durability", "object", "durability", "object"),
        ("durability", "object", "durability", "object"),
        ("min.cleanable.dirty.ratio", "0.25", "min_dirty_ratio", 0.25),
        ("max.message.bytes", "2097152", "max_message_bytes", 2 * MIB),
        ("compression.type", "zstd", "compression_type", "zstd"),
        ("min.insync.replicas", "2", "min_insync_replicas", 2),
        ("max.compaction.lag.ms", "1000", "max_compaction_lag_ms", 1_000),
        ("message.timestamp.before.max.ms", "3600000", "message_timestamp_before_max_ms", 3_600_000),
        ("message.timestamp.after.max.ms", "0", "message_timestamp_after_max_ms", 0),
        ("message.timestamp.difference.max.ms", "5", "message_timestamp_difference_max_ms", 5),
        ("remote.storage.enable", "TRUE", "remote_storage_enable", True),
        ("remote.log.copy.disable", "true", "remote_log_copy_disable", True),
        ("remote.log.delete.on.disable", "true", "remote_log_delete_on_disable", True),
        ("local.retention.ms", "-1", "local_retention_ms", -1),
        ("local.retention.bytes", "1073741824", "local_retention_bytes", 1 << 30),
        ("holdfast.partitions", "fixed", "partition_count", "fixed"),
    ],
)
def test_kafkas_names_and_values_map_to_ours(name: str, value: str, field: str, read: object) -> None:
    assert read_settings([(name, value)]) == {field: read}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "soon", "invalid retention.ms 'soon'"),
        ("retention.ms", "-2", "invalid retention.ms '-2'"),
        ("segment.bytes", "0", "invalid segment.bytes '0'"),
        ("roll_bytes", "1", "invalid roll_bytes '1'"),
        ("cleanup.policy", "", "cleanup.policy"),
        ("cleanup.policy", "keep", "one of delete, compact"),
        ("message.timestamp.type", "now", "CreateTime or LogAppendTime"),
        ("max.message.bytes", str(64 * MIB), "max.message.bytes"),
        ("compression.type", "best", "must be one of producer, uncompressed, gzip"),
        ("min.insync.replicas", "0", "between 1 and"),
        ("max.compaction.lag.ms", "0", "between 1 and"),
        ("holdfast.partitions", "many", "growable, fixed"),
        ("message.timestamp.before.max.ms", "-1", "between 0 and"),
        ("message.timestamp.after.max.ms", "soon", "invalid message.timestamp.after.max.ms 'soon'"),
        ("message.timestamp.difference.max.ms", str(1 << 63), "between 0 and"),
        ("remote.storage.enable", "perhaps", "invalid remote.storage.enable 'perhaps'"),
        ("local.retention.ms", "-3", "invalid local.retention.ms '-3'"),
        ("local.retention.bytes", "-3", "invalid local.retention.bytes '-3'"),
        ("colour", "red", "colour"),
        ("retention.ms", None, "a string"),
    ],
)
def test_an_invalid_setting_is_refused_under_the_clients_name(name: str, value: str | None, text: str) -> None:
    with pytest.raises(InvalidError) as error:
        read_settings([(name, value)])
    assert text in str(error.value)


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_ignored_settings_are_accepted_and_not_stored(name: str) -> None:
    assert read_settings([(name, "1")]) == {}


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_local_retention_is_no_longer_than_retention_where_kafka_would_tier(unit: str) -> None:
    def given(local: str, retention: str) -> list[tuple[str, str | None]]:
        tiered = ("remote.storage.enable", "true")
        return [tiered, (f"local.retention.{unit}", local), (f"retention.{unit}", retention)]

    for local, retention in (("1000", "1000"), ("-2", "1000"), ("-1", "-1"), ("1000", "-1")):
        assert read_settings(given(local, retention))
    for local, retention in (("1001", "1000"), ("-1", "1000")):
        assert read_settings(given(local, retention)[1:])
        with pytest.raises(InvalidError, match=f"invalid local.retention.{unit} .*retention_{unit}"):
            read_settings(given(local, retention))


def test_one_setting_by_two_names_must_have_one_value() -> None:
    both = [("unclean.leader.election.enable", "true"), ("holdfast.unclean.takeover", "true")]
    assert read_settings(both) == {"unclean_takeover": True}
    with pytest.raises(InvalidError, match="under another name"):
        read_settings([both[0], ("holdfast.unclean.takeover", "false")])


def test_described_settings_can_be_set_again() -> None:
    rows = topic_config_entries(TopicConfig(), ())
    back = read_settings((row.name, row.value) for row in rows)
    assert back == {name: getattr(TopicConfig(), name) for name in NAMES}


def test_values_are_spelt_as_kafkas_clients_read_them() -> None:
    assert [config_text(each) for each in (True, False, 5, 0.5, "append_time", "delete")] == [
        "true",
        "false",
        "5",
        "0.5",
        "LogAppendTime",
        "delete",
    ]


def test_the_docs_page_lists_exactly_these_settings() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text()
    rows = re.findall(r"^\| `([a-z.]+)` \| `([a-z_]+)` \| ([^|]+) \|$", page, re.MULTILINE)
    assert {name: (field, "refused" not in beyond) for name, field, beyond in rows} == {
        name: (mapped.field, mapped.bounds is not None) for name, mapped in MAPPED.items()
    }
    ignored = page.partition("not\nkept: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z0-9.]+)`", ignored)) == IGNORED


# ── describing ──


async def test_settings_without_effect_are_kept_for_tools_that_compare_them(tmp_path: Path) -> None:
    wanted = {"compression.type": "zstd", "min.insync.replicas": "2", "max.compaction.lag.ms": "1000"}
    wanted |= {"message.timestamp.after.max.ms": "3600000", "remote.storage.enable": "true", "local.retention.ms": "5"}
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        changed = {**resource("orders"), "configs": setting(wanted)}
        answer = await admin.ask("IncrementalAlterConfigs", resources=[changed])
        assert code(answer.responses[0]) is ErrorCode.NONE
        shown = await described(admin)
        assert {name: shown[name].value for name in wanted} == wanted
        assert {shown[name].config_source for name in wanted} == {1}


async def test_every_version_describes_a_topic(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}, config={"retention_ms": 1_000}) as admin:
        for version in versions("DescribeConfigs"):
            answer = await admin.ask("DescribeConfigs", version, resources=[resource("orders")])
            (result,) = answer.results
            assert (code(result), result.resource_type, result.resource_name) == (
                ErrorCode.NONE,
                ConfigResourceType.TOPIC,
                "orders",
            )
            configs = {each.name: each for each in result.configs}
            assert set(configs) == set(MAPPED)
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
            assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("60000", 5)
            assert not configs["retention.ms"].read_only
            assert all(each.synonyms == () for each in result.configs), "nobody asked for them"
            if version >= 3:
                assert configs["retention.ms"].config_type == ConfigType.LONG
                assert configs["retention.ms"].documentation is None


async def test_synonyms_and_documentation_are_returned_on_request(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}, config={"retention_ms": 1_000}) as admin:
        answer = await admin.ask(
            "DescribeConfigs", resources=[resource("orders")], include_synonyms=True, include_documentation=True
        )
        configs = {each.name: each for each in answer.results[0].configs}
        assert [(each.name, each.value, each.source) for each in configs["retention.ms"].synonyms] == [
            ("retention.ms", "1000", 1),
            ("log.retention.ms", "604800000", 5),
        ]
        assert [(each.name, each.source) for each in configs["segment.ms"].synonyms] == [("log.roll.ms", 5)]
        assert all(each.documentation for each in answer.results[0].configs)


async def test_only_the_settings_that_are_named_are_described(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        wanted = resource("orders", configuration_keys=["retention.ms", "cleanup.policy", "colour"])
        answer = await admin.ask("DescribeConfigs", resources=[wanted])
        assert [each.name for each in answer.results[0].configs] == ["cleanup.policy", "retention.ms"]


async def test_every_version_describes_a_broker(tmp_path: Path) -> None:
    async with admin_of(tmp_path, auto_create_partitions=3) as admin:
        for version in versions("DescribeConfigs"):
            wanted = [
                resource(str(admin.node), ConfigResourceType.BROKER),
                resource("", ConfigResourceType.BROKER),
                resource("999", ConfigResourceType.BROKER),
            ]
            answer = await admin.ask("DescribeConfigs", version, resources=wanted, include_synonyms=True)
            mine, shared, unknown = answer.results
            values = {each.name: each.value for each in mine.configs}
            assert values["num.partitions"] == "3"
            assert values["auto.create.topics.enable"] == "true"
            assert values["message.max.bytes"] == "1048588"
            assert values["log.retention.ms"] == "604800000"
            assert (values["default.replication.factor"], values["min.insync.replicas"]) == ("1", "1")
            assert values["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:{admin.gateway.port}"
            assert all(each.read_only and (each.value is not None or each.is_sensitive) for each in mine.configs)
            assert len(values) == len(mine.configs)
            assert (code(shared), shared.configs) == (ErrorCode.NONE, ())
            assert code(unknown) is ErrorCode.INVALID_REQUEST
            assert "999" in unknown.error_message


@pytest.mark.parametrize(
    ("name", "kind", "refusal"),
    [
        ("nowhere", ConfigResourceType.TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ConfigResourceType.TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("9", 8, ErrorCode.INVALID_REQUEST),
        ("x", 64, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_resource_that_cannot_be_described_or_altered_gets_its_code(
    tmp_path: Path, name: str, kind: int, refusal: ErrorCode
) -> None:
    async with admin_of(tmp_path) as admin:
        (result,) = (await admin.ask("DescribeConfigs", resources=[resource(name, kind)])).results
        assert (code(result), result.configs) == (refusal, ())
        assert result.error_message
        for api in ("AlterConfigs", "IncrementalAlterConfigs"):
            wanted = resource(name, kind, configs=setting({"retention.ms": "1000"}))
            (response,) = (await admin.ask(api, resources=[wanted])).responses
            assert code(response) is refusal
            assert response.error_message


# ── altering ──


async def test_every_version_of_alter_configs_replaces_all_settings(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}, config={"retention_bytes": 5, "retention_ms": 1}) as admin:
        for version in versions("AlterConfigs"):
            wanted = resource("orders", configs=setting({"retention.ms": f"{1000 + version}", "flush.ms": "1"}))
            (validated,) = (await admin.ask("AlterConfigs", version, resources=[wanted], validate_only=True)).responses
            assert code(validated) is ErrorCode.NONE
            assert (await admin.backend.log.topics.get("orders")).config.retention_ms != 1_000 + version
            (altered,) = (await admin.ask("AlterConfigs", version, resources=[wanted])).responses
            assert (code(altered), altered.resource_name, altered.resource_type) == (
                ErrorCode.NONE,
                "orders",
                ConfigResourceType.TOPIC,
            )
            assert (await admin.backend.log.topics.get("orders")).overrides == {"retention_ms": 1_000 + version}
        await admin.ask("AlterConfigs", resources=[resource("orders", configs=[])])
        assert (await admin.backend.log.topics.get("orders")).overrides == {}


async def test_every_version_of_incremental_alter_configs_changes_only_what_it_names(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}, config={"retention_bytes": 5, "retention_ms": 1}) as admin:
        for version in versions("IncrementalAlterConfigs"):
            await admin.backend.log.topics.alter("orders", {"retention_bytes": 5})
            changes = [
                {"name": "retention.ms", "value": f"{1000 + version}", "config_operation": AlterConfigOperation.SET},
                {"name": "retention.bytes", "value": None, "config_operation": AlterConfigOperation.DELETE},
            ]
            wanted = resource("orders", configs=changes)
            (validated,) = (
                await admin.ask("IncrementalAlterConfigs", version, resources=[wanted], validate_only=True)
            ).responses
            assert code(validated) is ErrorCode.NONE
            assert (await admin.backend.log.topics.get("orders")).config.retention_bytes == 5
            (altered,) = (await admin.ask("IncrementalAlterConfigs", version, resources=[wanted])).responses
            assert (code(altered), altered.resource_name) == (ErrorCode.NONE, "orders")
            assert (await admin.backend.log.topics.get("orders")).overrides == {"retention_ms": 1_000 + version}
            assert (await described(admin))["retention.ms"].value == f"{1000 + version}"


async def test_a_list_is_appended_to_and_subtracted_from(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        for operation, value, after in (
            (AlterConfigOperation.APPEND, "compact", "compact,delete"),
            (AlterConfigOperation.APPEND, "compact", "compact,delete"),
            (AlterConfigOperation.SUBTRACT, "delete", "compact"),
        ):
            change = {"name": "cleanup.policy", "value": value, "config_operation": operation}
            await admin.ask("IncrementalAlterConfigs", resources=[resource("orders", configs=[change])])
            assert (await described(admin))["cleanup.policy"].value == after


REFUSED: dict[str, tuple[list[dict[str, Any]], ErrorCode, str]] = {
    "appending to a number": (
        [{"name": "retention.ms", "value": "1", "config_operation": AlterConfigOperation.APPEND}],
        ErrorCode.INVALID_CONFIG,
        "needs a list",
    ),
    "leaving a list empty": (
        [{"name": "cleanup.policy", "value": "delete", "config_operation": AlterConfigOperation.SUBTRACT}],
        ErrorCode.INVALID_CONFIG,
        "cleanup.policy",
    ),
    "an unknown operation": (
        [{"name": "retention.ms", "value": "1", "config_operation": 9}],
        ErrorCode.INVALID_REQUEST,
        "operation 9",
    ),
    "a setting named twice": (
        [*setting({"retention.ms": "1"}), *setting({"retention.ms": "2"})],
        ErrorCode.INVALID_REQUEST,
        "duplicate configs: retention.ms",
    ),
    "no value": (setting({"retention.ms": None}), ErrorCode.INVALID_CONFIG, "retention.ms"),
    "an unknown setting": (setting({"colour": "red"}), ErrorCode.INVALID_CONFIG, "colour"),
    "deleting an unknown setting": (
        [{"name": "colour", "value": None, "config_operation": AlterConfigOperation.DELETE}],
        ErrorCode.INVALID_CONFIG,
        "colour",
    ),
    "settings that exclude each other": (
        setting({"cleanup.policy": "compact", "holdfast.unclean.takeover": "true"}),
        ErrorCode.INVALID_CONFIG,
        "compacted topic",
    ),
}


async def test_a_refused_change_changes_nothing_and_has_a_message(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        for what, (configs, refusal, text) in REFUSED.items():
            (response,) = (
                await admin.ask("IncrementalAlterConfigs", resources=[resource("orders", configs=configs)])
            ).responses
            assert (what, code(response)) == (what, refusal)
            assert text in response.error_message, what
        assert (await admin.backend.log.topics.get("orders")).overrides == {}


async def test_a_change_that_only_the_rest_of_the_settings_forbids_is_refused_too(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}, config={"cleanup_policy": "compact"}) as admin:
        for validate_only in (True, False):
            configs = setting({"unclean.leader.election.enable": "true"})
            (response,) = (
                await admin.ask(
                    "IncrementalAlterConfigs",
                    resources=[resource("orders", configs=configs)],
                    validate_only=validate_only,
                )
            ).responses
            assert code(response) is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("api", ["AlterConfigs", "IncrementalAlterConfigs"])
async def test_brokers_cannot_be_altered_and_a_resource_is_named_once(tmp_path: Path, api: str) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        configs = setting({"log.retention.ms": "1"})
        (response,) = (
            await admin.ask(api, resources=[resource(str(admin.node), ConfigResourceType.BROKER, configs=configs)])
        ).responses
        assert code(response) is ErrorCode.INVALID_REQUEST
        assert "read-only" in response.error_message
        twice = [resource("orders", configs=setting({"retention.ms": value})) for value in ("1", "2")]
        responses = (await admin.ask(api, resources=twice)).responses
        assert [code(each) for each in responses] == [ErrorCode.INVALID_REQUEST] * 2


async def test_throttles_of_brokers_are_accepted_without_effect_as_tools_set_them_before_they_move_anything(
    tmp_path: Path,
) -> None:
    throttle = "leader.replication.throttled.rate"
    rates: dict[str, str | None] = {throttle: "1000000", "follower.replication.throttled.rate": "1000000"}
    async with admin_of(tmp_path) as admin:
        for name, configs, expected in (
            (str(admin.node), setting(rates), ErrorCode.NONE),
            ("", setting(rates), ErrorCode.NONE),
            (str(admin.node), [{"name": each, "config_operation": 1, "value": None} for each in rates], ErrorCode.NONE),
            ("777", setting(rates), ErrorCode.INVALID_REQUEST),
            *(
                (str(admin.node), setting({**rates, throttle: value}), ErrorCode.INVALID_CONFIG)
                for value in ("fast", "-5", None)
            ),
            (str(admin.node), [{"name": throttle, "config_operation": 2, "value": "5"}], ErrorCode.INVALID_CONFIG),
            (str(admin.node), setting({**rates, "num.partitions": "3"}), ErrorCode.INVALID_REQUEST),
        ):
            asked = resource(name, ConfigResourceType.BROKER, configs=configs)
            (answer,) = (await admin.ask("IncrementalAlterConfigs", resources=[asked])).responses
            assert code(answer) is expected, (name, answer.error_message)


# ── where readers that go past the brokers find everything ──


@pytest.mark.parametrize(("version", "url"), [(version, url) for version in (1, 4) for url in ("s3://logs", None)])
async def test_a_broker_lists_the_url_of_its_objects_unless_it_contains_a_secret(
    tmp_path: Path, version: int, url: str | None
) -> None:
    async with admin_of(tmp_path) as admin:
        object.__setattr__(admin.gateway.backend, "objects_url", url)
        asked = resource(str(admin.node), ConfigResourceType.BROKER, configuration_keys=["holdfast.objects.url"])
        answer = await admin.ask("DescribeConfigs", version=version, resources=[asked])
        (told,) = answer.results[0].configs
        assert (told.name, told.value, told.is_sensitive, told.read_only) == (
            "holdfast.objects.url",
            url,
            url is None,
            True,
        )


# ── loggers ──


def levels(answer: Any) -> dict[str, str]:
    (result,) = answer.results
    assert code(result) is ErrorCode.NONE, result.error_message
    return {each.name: each.value for each in result.configs}


async def test_levels_of_loggers_are_described_and_changed_while_the_node_runs(tmp_path: Path) -> None:
    name = "holdfast.gateways.kafka.unsupported"
    logger = logging.getLogger(name)
    async with admin_of(tmp_path) as admin:
        loggers = resource(str(admin.node), ConfigResourceType.BROKER_LOGGER)
        assert levels(await admin.ask("DescribeConfigs", resources=[loggers]))["holdfast"] in ("INFO", "WARN", "DEBUG")

        async def alter(*configs: tuple[str, int, str | None], validate_only: bool = False) -> Any:
            listed = [
                {"name": each, "config_operation": operation, "value": value} for each, operation, value in configs
            ]
            asked = [{**loggers, "configs": listed}]
            answer = await admin.ask("IncrementalAlterConfigs", resources=asked, validate_only=validate_only)
            return answer.responses[0]

        try:
            await alter((name, 0, "ERROR"), validate_only=True)
            assert logger.level == logging.NOTSET
            assert code(await alter((name, 0, "ERROR"))) is ErrorCode.NONE
            assert logger.level == logging.ERROR
            assert levels(await admin.ask("DescribeConfigs", resources=[loggers]))[name] == "ERROR"
            for configs, expected, why in (
                ([("holdfast.nothing", 0, "INFO")], ErrorCode.INVALID_CONFIG, "unknown logger"),
                ([(name, 0, "LOUD")], ErrorCode.INVALID_CONFIG, "must be one of"),
                ([(name, 2, "INFO")], ErrorCode.INVALID_REQUEST, "no list"),
                ([("holdfast", 1, None)], ErrorCode.INVALID_REQUEST, "cannot be removed"),
                ([(name, 0, "INFO"), (name, 0, "INFO")], ErrorCode.INVALID_REQUEST, "duplicate"),
                ([(name, 0, "INFO"), ("x", 0, "INFO")], ErrorCode.INVALID_CONFIG, "unknown logger"),
            ):
                refused = await alter(*configs)
                assert code(refused) is expected
                assert why in refused.error_message
            assert logger.level == logging.ERROR
            assert code(await alter((name, 1, None))) is ErrorCode.NONE
            assert logger.level == logging.NOTSET
        finally:
            logger.setLevel(logging.NOTSET)
