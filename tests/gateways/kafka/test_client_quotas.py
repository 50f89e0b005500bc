"""Quotas over the wire: whoever takes too much is told to pause and is not read meanwhile; nobody else notices."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.kafka_security import secure_gateway
from tests.support.kafka_wire import FETCH, METADATA, PRODUCE, KafkaGateway, WireClient, fetch_request, produce_request
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.http.metrics.kafka import kafka_metrics
from holdfast.gateways.kafka.quota_meters import QuotaMeters
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.client_quotas import DEFAULT, Quota, QuotaEntity

LONG_MS = 3_600_000
ORDERS = {"orders": 1}


async def limit(gateway: KafkaGateway, entity: QuotaEntity, **limits: float | None) -> None:
    quotas = gateway.backend.quotas
    changes = {Quota[name.upper()]: value for name, value in limits.items()}
    await quotas.seen(await quotas.store.alter(entity, changes))


def throttle_ms(answer: Any) -> int:
    return int(answer.throttle_time.total_seconds() * 1_000)


async def produced(client: WireClient, size: int = 10, version: int = 9, acks: int = -1) -> Any:
    return await client.ask(PRODUCE, version, produce_request("orders", {0: batch("x" * size)}, acks=acks))


def muted(gateway: KafkaGateway) -> int:
    return sum(each._muted is not None for each in gateway.server.connections)


@pytest.mark.parametrize("version", [3, 9, 11])
async def test_a_producer_beyond_its_quota_is_answered_told_and_muted(tmp_path: Path, version: int) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=100)
        client = await admin.gateway.client()
        answer = await produced(client, 100_000, version)
        assert answer.responses[0].partition_responses[0].error_code.value == 0
        told_ms = throttle_ms(answer)
        assert 900_000 < told_ms < 1_100_000
        assert muted(admin.gateway) == 1
        await client.send(METADATA, 9, {"topics": None})
        other = await admin.gateway.client()
        other.client_id = "other"
        assert throttle_ms(await produced(other)) == 0
        (connection,) = [each for each in admin.gateway.server.connections if each._muted is not None]
        connection._unmute()
        await client.receive()  # the request that waited is answered now
        (family,) = [
            each
            for each in await kafka_metrics(admin.gateway.server, (), admin.backend.responses, ())()
            if each.name == "holdfast_kafka_throttled_seconds_total"
        ]
        counted = {labels["quota"]: seconds for labels, seconds in family.samples}
        assert counted["producer_byte_rate"] == told_ms / 1_000
        assert counted["consumer_byte_rate"] == 0


async def test_a_pause_ends_by_itself(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=1_000_000)
        client = await admin.gateway.client()
        started_ms = admin.backend.clock.boot_ms()
        told_ms = throttle_ms(await produced(client, 10_500_000))
        assert 300 < told_ms < 1_000
        await client.ask(METADATA, 9, {"topics": None})
        assert admin.backend.clock.boot_ms() - started_ms >= told_ms
        assert muted(admin.gateway) == 0


async def test_requests_that_are_sent_on_in_a_pause_wait_for_its_end(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=100)
        client = await admin.gateway.client()
        for _ in range(5):
            await client.send(PRODUCE, 9, produce_request("orders", {0: batch("x" * 100_000)}))
        await client.receive()
        assert (await admin.backend.log.describe("orders", 0)).high_watermark == 1


async def test_acks_0_is_muted_without_an_answer(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=100)
        client = await admin.gateway.client()
        await client.send(PRODUCE, 9, produce_request("orders", {0: batch("x" * 100_000)}, acks=0))
        await async_until(lambda: muted(admin.gateway) == 1)


@pytest.mark.parametrize("version", [3, 9, 11])
async def test_a_pause_that_no_response_can_name_is_the_longest_one(tmp_path: Path, version: int) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=1)
        for _ in range(3):  # connections of one client: each of them is read once
            answer = await asyncio.wait_for(produced(await admin.gateway.client(), 900_000, version), 10)
        assert throttle_ms(answer) == 2**31 - 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("consumer_byte_rate", 1e18), ("request_percentage", 1e308), ("request_percentage", 5e-324)],
)
async def test_limits_that_are_hardly_numbers_break_nothing(tmp_path: Path, key: str, value: float) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        entries = [altered({"client_id": "tests"}, **{key: value})]
        (answer,) = (await admin.ask("AlterClientQuotas", entries=entries, validate_only=False)).entries
        assert code(answer) is ErrorCode.NONE
        await produced(await admin.gateway.client())
        client = await admin.gateway.client()
        fetched = await client.ask(FETCH, 12, fetch_request("orders", {0: 0}))
        assert fetched.responses[0].partitions[0].records


@pytest.mark.parametrize("version", [4, 12])
async def test_a_consumer_beyond_its_quota_gets_its_records_and_a_pause(tmp_path: Path, version: int) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        client = await admin.gateway.client()
        await produced(client, 100_000)
        await limit(admin.gateway, QuotaEntity(DEFAULT), fetch=5_000)
        answer = await client.ask(FETCH, version, fetch_request("orders", {0: 0}))
        assert len(answer.responses[0].partitions[0].records) > 100_000
        assert 9_000 < throttle_ms(answer) < 12_000
        assert muted(admin.gateway) == 1
        assert [each._read_paused for each in admin.gateway.server.connections if each._muted is not None] == [True]


async def test_a_fetch_brings_no_more_than_a_burst(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        client = await admin.gateway.client()
        for _ in range(4):
            await produced(client, 10_000)
        await limit(admin.gateway, QuotaEntity(DEFAULT), fetch=2_100)
        answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 0}))
        assert 20_000 < len(answer.responses[0].partitions[0].records) < 22_000


async def test_time_is_limited_for_every_api_and_for_a_second_at_most(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), request=1e-9)
        asks: list[tuple[int, int, dict[str, Any]]] = [
            (METADATA, 9, {"topics": None}),
            (PRODUCE, 9, produce_request("orders", {0: batch("x")})),
            (FETCH, 12, fetch_request("orders", {0: 0})),
            (16, 5, {}),
            (32, 4, {"resources": [{"resource_type": 2, "resource_name": "orders"}]}),
        ]
        for key, version, given in asks:
            client = await admin.gateway.client()
            assert throttle_ms(await client.ask(key, version, given)) == 1_000, key
        assert len(admin.gateway.backend.meters) == 1


async def test_a_quota_is_shared_by_all_connections_of_a_client(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=10_000)
        assert throttle_ms(await produced(await admin.gateway.client(), 60_000)) == 0
        assert throttle_ms(await produced(await admin.gateway.client(), 60_000)) > 1_000


async def test_a_quota_of_a_user_needs_its_login(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics=ORDERS) as secure:
        await limit(secure.gateway, QuotaEntity("root"), produce=100)
        await limit(secure.gateway, QuotaEntity("ann"), produce=10**9)
        root = await secure.logged_in("root")
        assert throttle_ms(await produced(root.wire, 100_000)) > LONG_MS / 10
        ann = await secure.logged_in("ann")
        assert throttle_ms(await produced(ann.wire, 100_000)) == 0


async def test_a_quota_that_is_removed_counts_no_longer(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics=ORDERS) as admin:
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=100)
        await limit(admin.gateway, QuotaEntity(None, "tests"), produce=None)
        assert throttle_ms(await produced(await admin.gateway.client(), 100_000)) == 0


async def test_made_up_client_ids_take_bounded_memory(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        await limit(admin.gateway, QuotaEntity(None, DEFAULT), produce=100)
        meters = QuotaMeters(admin.backend.quotas, admin.backend.clock, buckets_max=100)
        for number in range(1_000):
            limits = meters.client("ANONYMOUS", f"made-up-{number}")
            assert limits is not None
            limits.charge(Quota.PRODUCE, 1)
        assert len(meters) == 100


# ── the APIs ──


def altered(entity: dict[str, str | None], **limits: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()],
    }


async def described(admin: Admin, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = await admin.ask("DescribeClientQuotas", components=asked, strict=strict)
    assert code(answer) is ErrorCode.NONE, answer.error_message
    listed = [tuple((each.entity_type, each.entity_name) for each in entry.entity) for entry in answer.entries]
    return sorted(listed, key=str)


async def test_quotas_are_altered_and_described_over_kafkas_own_apis(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        entities: list[dict[str, str | None]] = [
            {"user": "ann"},
            {"user": None},
            {"client_id": "app"},
            {"user": "ann", "client_id": "app"},
        ]
        for version in versions("AlterClientQuotas"):
            entries = [altered(each, producer_byte_rate=1_000.0, request_percentage=12.5) for each in entities]
            answer = await admin.ask("AlterClientQuotas", version, entries=entries, validate_only=False)
            assert {code(each) for each in answer.entries} == {ErrorCode.NONE}
        for version in versions("DescribeClientQuotas"):
            answer = await admin.ask("DescribeClientQuotas", version, components=(), strict=False)
            assert len(answer.entries) == 4
            values = {each.key: each.value for each in answer.entries[0].values}
            assert values == {"producer_byte_rate": 1_000, "request_percentage": 12.5}
        ann, both = (("user", "ann"),), (("user", "ann"), ("client-id", "app"))
        assert await described(admin, ("user", 0, "ann")) == sorted([ann, both], key=str)
        assert await described(admin, ("user", 0, "ann"), strict=True) == [ann]
        assert await described(admin, ("user", 1, None)) == [(("user", None),)]
        assert await described(admin, ("user", 2, None), ("client-id", 2, None)) == [both]
        assert await described(admin, ("ip", 2, None)) == []
        removed = altered({"user": "ann"}, producer_byte_rate=None, request_percentage=None)
        await admin.ask("AlterClientQuotas", entries=[removed], validate_only=True)
        assert len(await described(admin)) == 4
        await admin.ask("AlterClientQuotas", entries=[removed], validate_only=False)
        assert len(await described(admin)) == 3


async def test_quotas_of_addresses_are_altered_and_described_over_kafkas_own_apis(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        rates: dict[str | None, float] = {"10.0.0.1": 1.0, "2001:DB8:0::1": 2.0, None: 3.0}
        for version in versions("AlterClientQuotas"):
            entries = [altered({"ip": name}, connection_creation_rate=rate) for name, rate in rates.items()]
            answer = await admin.ask("AlterClientQuotas", version, entries=entries, validate_only=False)
            assert {code(each) for each in answer.entries} == {ErrorCode.NONE}
            assert [each.entity[0].entity_name for each in answer.entries] == list(rates)
        await admin.ask(
            "AlterClientQuotas", entries=[altered({"user": "ann"}, producer_byte_rate=1.0)], validate_only=False
        )
        for version in versions("DescribeClientQuotas"):
            component = {"entity_type": "ip", "match_type": 2, "match": None}
            answer = await admin.ask("DescribeClientQuotas", version, components=[component], strict=True)
            found = {each.entity[0].entity_name: each.values[0] for each in answer.entries}
            assert {each.key for each in found.values()} == {"connection_creation_rate"}
            assert {name: each.value for name, each in found.items()} == {"10.0.0.1": 1, "2001:db8::1": 2, None: 3}
        assert await described(admin, ("ip", 0, "2001:db8:0:0::1")) == [(("ip", "2001:db8::1"),)]
        assert await described(admin, ("ip", 1, None)) == [(("ip", None),)]
        assert len(await described(admin)) == 4
        removed = [altered({"ip": name}, connection_creation_rate=None) for name in rates]
        await admin.ask("AlterClientQuotas", entries=removed, validate_only=False)
        assert await described(admin) == [(("user", "ann"),)]


@pytest.mark.parametrize(
    ("entry", "expected", "why"),
    [
        (altered({}, producer_byte_rate=1.0), ErrorCode.INVALID_REQUEST, "nobody"),
        (altered({"group": "g"}, producer_byte_rate=1.0), ErrorCode.INVALID_REQUEST, "unknown entity type"),
        (altered({"user": ""}, producer_byte_rate=1.0), ErrorCode.INVALID_REQUEST, "empty name"),
        (altered({"ip": "localhost"}, connection_creation_rate=1.0), ErrorCode.INVALID_REQUEST, "an IP address"),
        (altered({"ip": ""}, connection_creation_rate=1.0), ErrorCode.INVALID_REQUEST, "empty name"),
        (altered({"ip": None}, connection_creation_rate=0.5), ErrorCode.INVALID_REQUEST, "whole number"),
        (altered({"ip": "::1"}, producer_byte_rate=1.0), ErrorCode.INVALID_REQUEST, "one of connection_creation_rate"),
        (altered({"user": "ann"}, connection_creation_rate=1.0), ErrorCode.INVALID_REQUEST, "one of producer"),
        (
            altered({"ip": "1.2.3.4", "user": "ann"}, connection_creation_rate=1.0),
            ErrorCode.INVALID_REQUEST,
            "not combined with a user or client id",
        ),
        (altered({"user": "ann"}, controller_mutation_rate=1.0), ErrorCode.INVALID_REQUEST, "one of producer"),
        (altered({"user": "ann"}, producer_byte_rate=-1.0), ErrorCode.INVALID_REQUEST, "more than 0"),
        (altered({"user": "ann"}, producer_byte_rate=1.5), ErrorCode.INVALID_REQUEST, "whole number"),
        (altered({"user": "ann"}, consumer_byte_rate=1e308), ErrorCode.INVALID_REQUEST, "at most"),
        (altered({"ip": "10.0.0.0%/8"}, connection_creation_rate=1.0), ErrorCode.INVALID_REQUEST, "an IP address"),
    ],
)
async def test_a_quota_that_cannot_be_is_refused_in_words(
    tmp_path: Path, entry: dict[str, Any], expected: ErrorCode, why: str
) -> None:
    async with admin_of(tmp_path) as admin:
        for validate_only in (True, False):
            answer = await admin.ask("AlterClientQuotas", entries=[entry], validate_only=validate_only)
            (refused,) = answer.entries
            assert code(refused) is expected
            assert why in refused.error_message
        assert await described(admin) == []


async def test_a_refusal_of_a_long_name_fits_every_version(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("AlterClientQuotas"):
            entry = altered({"user": "u" * 32_760, "ip": "10.0.0.1"}, connection_creation_rate=1.0)
            answer = await admin.ask("AlterClientQuotas", version, entries=[entry], validate_only=False)
            assert code(answer.entries[0]) is ErrorCode.INVALID_REQUEST


async def test_a_filter_that_means_nothing_is_refused_in_words(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        user = {"entity_type": "user", "match_type": 2, "match": None}
        for components, expected in (
            ([user, user], ErrorCode.INVALID_REQUEST),
            ([{**user, "match_type": 9}], ErrorCode.INVALID_REQUEST),
            ([{**user, "match_type": 0}], ErrorCode.INVALID_REQUEST),
            ([{**user, "entity_type": "x"}], ErrorCode.UNSUPPORTED_VERSION),
            ([user, {**user, "entity_type": "ip"}], ErrorCode.INVALID_REQUEST),
            ([{"entity_type": "ip", "match_type": 0, "match": "localhost"}], ErrorCode.INVALID_REQUEST),
        ):
            answer = await admin.ask("DescribeClientQuotas", components=components, strict=False)
            assert (code(answer), answer.entries) == (expected, None)
            assert answer.error_message
