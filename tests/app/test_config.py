"""Settings: five sources, one answer, and a refusal that says where the wrong word stands."""

from pathlib import Path

import pytest

from holdfast.app.addresses import Address, AdvertisedAddress
from holdfast.app.config import CATALOGUE, EffectiveSettings, effective_settings
from holdfast.vocabulary.errors import HoldfastError, InvalidError

HERE = Path("/srv")


def settle(
    flags: dict[str, object] | None = None,
    *assignments: str,
    env: dict[str, str] | None = None,
    file: str = "",
    directory: Path = HERE,
) -> EffectiveSettings:
    return effective_settings(
        flags=flags or {}, assignments=assignments, file=file, environment=env or {}, directory=directory
    )


def origins(effective: EffectiveSettings) -> dict[str, str]:
    return {each.name: each.origin for each in effective.shown}


def values(effective: EffectiveSettings) -> dict[str, object]:
    return {each.name: each.value for each in effective.shown}


def test_without_a_word_everything_is_in_one_directory_and_on_loopback() -> None:
    effective = settle()
    settings = effective.settings
    assert settings.data == HERE / "holdfast-data"
    assert settings.store == "sqlite:////srv/holdfast-data/store.db"
    assert settings.objects == "file:///srv/holdfast-data/objects"
    assert settings.listen == Address("127.0.0.1", 9092)
    assert settings.roles == ("api", "agent", "worker")
    assert settings.leads
    assert set(origins(effective).values()) == {"default"}
    assert not effective.notices


def test_a_directory_with_odd_letters_is_still_a_url() -> None:
    settings = settle({"data": "/srv/a b#c?d"}).settings
    assert settings.store == "sqlite:////srv/a%20b%23c%3Fd/store.db"
    assert settings.objects == "file:///srv/a%20b%23c%3Fd/objects"


def test_later_sources_win_and_each_value_knows_its_source(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(
        """
        stop_ms = 1000
        [agent]
        zone = "file"
        group = "file"
        id = "file"
        [kafka]
        idle_ms = 7
        listen = "127.0.0.1:1"
        """
    )
    effective = settle(
        {"agent.id": "flag", "agent.zone": None},
        "kafka.idle_ms=9",
        env={"AGENT_GROUP": "alias", "AGENT_ZONE": "alias", "HOLDFAST_ZONE": "ours", "HOLDFAST_AGENT_ID": "ours"},
        file="node.toml",
        directory=tmp_path,
    )
    settings = effective.settings
    assert (settings.agent_id, settings.zone, settings.group) == ("flag", "ours", "alias")
    assert settings.kafka.idle_ms == 9
    assert settings.stop_ms == 1000
    assert {name: origin for name, origin in origins(effective).items() if origin != "default"} == {
        "stop_ms": "node.toml:2",
        "agent.id": "flag --agent-id",
        "agent.zone": "env HOLDFAST_ZONE",
        "agent.group": "alias AGENT_GROUP",
        "kafka.listen": "node.toml:9",
        "kafka.idle_ms": "flag --set kafka.idle_ms",
    }


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("insecure = true\nroles = ['api', 'worker']")
    settings = settle(env={"HOLDFAST_CONFIG": "a.toml"}, directory=tmp_path).settings
    assert settings.insecure
    assert settings.roles == ("api", "worker")
    assert not settings.leads


def test_every_setting_has_a_variable_of_its_own_and_takes_its_own_default_from_it() -> None:
    variables = [variable for setting in CATALOGUE.values() for variable in setting.variables]
    assert len(variables) == len(set(variables))
    plain = {
        setting.variables[0]: str(setting.default)
        for setting in CATALOGUE.values()
        if setting.default != "" and setting.kind is not bool
    }
    told = settle(env=plain)
    assert told.settings == settle().settings
    assert set(origins(told).values()) == {"default"} | {f"env {name}" for name in plain}


@pytest.mark.parametrize(
    ("section", "name"), [("agent", "tail_bytes_max"), ("log", "publish_tick_ms"), ("wal", "read_bytes")]
)
def test_tuning_values_reach_the_agent(section: str, name: str) -> None:
    agent = settle(None, f"{section}.{name}=123456").settings.as_agent("ann", "here:9092")
    assert getattr(agent if section == "agent" else getattr(agent, section), name) == 123456
    assert (agent.id, agent.address) == ("ann", "here:9092")


def test_the_names_streamhouse_users_know_mean_what_they_mean_there() -> None:
    effective = settle(
        env={
            "KAFKA_ADDR": "0.0.0.0:19092",
            "KAFKA_ADVERTISED_HOST": "broker.example",
            "KAFKA_ADVERTISED_PORT": "29092",
            "DATABASE_URL": "postgres://me:pw@db/streamhouse",
            "STREAMHOUSE_BUCKET": "events",
            "S3_ENDPOINT": "http://127.0.0.1:9000",
            "AGENT_ID": "agent-7",
            "AGENT_ZONE": "az1",
            "AGENT_GROUP": "writers",
            "AGENT_ADDRESS": "127.0.0.1:9090",
            "DISABLE_EMBEDDED_AGENT": "true",
            "HTTP_ADDR": "0.0.0.0:8080",
            "GRPC_ADDR": "0.0.0.0:50051",
        }
    )
    settings = effective.settings
    assert settings.listen == Address("0.0.0.0", 19092)
    assert settings.advertise == AdvertisedAddress("broker.example", 29092)
    assert settings.http_listen == Address("0.0.0.0", 8080)
    assert settings.store == "postgres://me:pw@db/streamhouse"
    assert settings.objects == "s3://events?endpoint=http://127.0.0.1:9000"
    assert (settings.agent_id, settings.zone, settings.group) == ("agent-7", "az1", "writers")
    assert settings.roles == ("api",)
    assert [notice.partition(" is set: ")[0] for notice in effective.notices] == [
        "AGENT_ADDRESS",
    ]
    assert (settings.grpc_listen, settings.grpc_default) == (Address("0.0.0.0", 50051), False)


@pytest.mark.parametrize(
    ("host", "port", "told"),
    [("broker", "", "broker:9092"), ("", "29092", "127.0.0.1:29092"), ("fe80::1", "29092", "[fe80::1]:29092")],
)
def test_an_advertised_host_or_port_may_stand_alone(host: str, port: str, told: str) -> None:
    settings = settle(env={"KAFKA_ADVERTISED_HOST": host, "KAFKA_ADVERTISED_PORT": port}).settings
    assert str(settings.advertise.resolve(settings.listen, host_name="me")) == told


def test_a_node_that_listens_everywhere_tells_its_hosts_name_unless_told_otherwise() -> None:
    everywhere = Address("0.0.0.0", 9092)
    assert str(AdvertisedAddress().resolve(everywhere, host_name="me")) == "me:9092"
    assert str(AdvertisedAddress.parse("x", "other").resolve(everywhere, host_name="me")) == "other:9092"


def test_an_endpoint_without_a_bucket_is_reported() -> None:
    assert "STREAMHOUSE_BUCKET" in settle(env={"S3_ENDPOINT": "http://127.0.0.1"}).notices[0]


def test_variables_that_are_not_ours_are_left_alone() -> None:
    settle(
        env={
            "HOLDFAST_TEST_BROKER": "apache",
            "HOLDFAST_BOOTSTRAP": "127.0.0.1:1",
            "HOLDFAST_HTTP_URL": "http://127.0.0.1:1",
            "HOLDFAST_API_KEY": "hf_key",
            "HOLDFAST_SERVICE_HOST": "10.0.0.1",  # what Kubernetes sets for a service called holdfast
            "HOLDFAST_SERVICE_PORT_KAFKA": "9092",
            "HOLDFAST_PORT": "tcp://10.0.0.1:9092",
            "HOLDFAST_PORT_9092_TCP_ADDR": "10.0.0.1",
            "HOLDFAST_KAFKA_SERVICE_HOST": "10.0.0.1",
            "HOLDFAST_KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
            "HOLDFAST_ZONE": "",  # set and empty is not said
            "PATH": "/bin",
        }
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[kafka]\n\nidel_ms = 1", ("b.toml:3", "kafka.idel_ms", "did you mean kafka.idle_ms")),
        ("kafka = '127.0.0.1:1'", ("b.toml:1", "kafka.listen")),
        ("[kafka]\nidle_ms = 'x'", ("kafka.idle_ms (from b.toml:2)", "'x'", "an integer")),
        ("kafka.idle_ms = true", ("kafka.idle_ms (from b.toml:1)", "an integer")),
        ("insecure = 1", ("insecure (from b.toml:1)", "true or false")),
        ("[session]\nrenew_ms = 20000", ("session.renew_ms (from b.toml:2)", "between 1 and 15000")),
        ("[kafka]\nrequest_bytes_max = 1", ("kafka.request_bytes_max (from b.toml:2)", "between")),
        ("[wal]\nfile_bytes = 1", ("wal.file_bytes (from b.toml:2)", "between")),
        ("roles = ['api', 'boss']", ("roles (from b.toml:1)", "boss", "api, agent, worker")),
        ("[logging]\nlevel = 'loud'", ("logging.level (from b.toml:2)", "debug, info, warning, error")),
        ("[agent]\nid = 'a/b'", ("agent.id (from b.toml:2)", "without /")),
        ("data = ", ("b.toml", "TOML")),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, says: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(text)
    with pytest.raises(InvalidError) as refused:
        settle(file="b.toml", directory=tmp_path)
    for words in says:
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"HOLDFAST_KAFKA_IDEL_MS": "1"}, ("HOLDFAST_KAFKA_IDEL_MS", "did you mean HOLDFAST_KAFKA_IDLE_MS")),
        ({"HOLDFAST_KAFKA_IDLE_MS": "soon"}, ("env HOLDFAST_KAFKA_IDLE_MS", "'soon'", "an integer")),
        ({"HOLDFAST_INSECURE": "perhaps"}, ("env HOLDFAST_INSECURE", "true or false")),
        ({"HOLDFAST_ROLES": "api,boss"}, ("env HOLDFAST_ROLES", "boss")),
        ({"HOLDFAST_ROLES": ","}, ("env HOLDFAST_ROLES", "one or more of")),
        ({"HOLDFAST_KAFKA": "9092"}, ("env HOLDFAST_KAFKA", "HOST:PORT")),
        ({"HOLDFAST_KAFKA": "a:1", "HOLDFAST_KAFKA_LISTEN": "b:1"}, ("HOLDFAST_KAFKA_LISTEN", "env HOLDFAST_KAFKA")),
        ({"KAFKA_ADDR": "host:99999"}, ("alias KAFKA_ADDR", "HOST:PORT")),
        ({"DISABLE_EMBEDDED_AGENT": "maybe"}, ("DISABLE_EMBEDDED_AGENT", "true")),
        ({"HOLDFAST_ADVERTISE": "0.0.0.0:9092"}, ("env HOLDFAST_ADVERTISE", "reachable for clients")),
        ({"HOLDFAST_CONFIG": "missing.toml"}, ("missing.toml", "readable")),
    ],
)
def test_a_wrong_variable_is_refused_by_name(env: dict[str, str], says: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as refused:
        settle(env=env, directory=tmp_path)
    for words in says:
        assert words in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "assignments", "says"),
    [
        ({"kafka.listen": "::1:9092"}, (), "flag --kafka"),
        ({"store": "mysql://u:secret@host/db"}, (), "flag --store"),
        ({"objects": "ftp://host?secret_access_key=secret"}, (), "flag --objects"),
        ({"logging.format": "yaml"}, (), "text, json"),
        ({"stop_ms": "-1"}, (), "flag --stop-ms"),
        ({}, ("kafka.idle_ms",), "NAME=VALUE"),
        ({}, ("kafka.idle=1",), "did you mean kafka.idle_ms"),
    ],
)
def test_a_wrong_flag_is_refused_by_name_and_no_secret_is_shown(
    flags: dict[str, object], assignments: tuple[str, ...], says: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        settle(flags, *assignments)
    assert says in str(refused.value)
    assert "secret@" not in str(refused.value)
    assert "=secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("store", "objects"),
    [
        ("postgresql://me:s3cr3t@db/x", "s3://b/p?region=eu&secret_access_key=s3cr3t&access_key_id=s3cr3t"),
        ("redis://:s3cr3t@h/0?timeout_ms=5", "az://c?account_name=n&sas_key=s3cr3t"),
        ("postgresql://me:s3cr3t@x@db/x", "s3://s3cr3t@bucket"),
        ("etcd://s3cr3t@h:2379", "s3://b?endpoint=http://u:s3cr3t@h"),
    ],
)
def test_no_secret_is_ever_shown(store: str, objects: str) -> None:
    shown = values(settle({"store": store, "objects": objects}))
    assert "s3cr3t" not in f"{shown['store']} {shown['objects']}"
    assert "***" in str(shown["store"])


def test_every_mistake_of_a_file_is_reported_at_once_and_once(tmp_path: Path) -> None:
    text = """\
roles = "boss"
stop_ms = -1
[kafka]
listen = "nowhere"
idel_ms = 1
request_bytes_max = 1
idle_ms = "x"
[wal]
file_bytes = 1
[logging]
level = "loud"
"""
    (tmp_path / "b.toml").write_text(text)
    with pytest.raises(InvalidError) as refused:
        settle(file="b.toml", directory=tmp_path)
    head, *lines = str(refused.value).splitlines()
    assert head == "8 invalid settings:"
    found = {int(line.partition("b.toml:")[2].partition(")")[0]) for line in lines}
    assert found == {1, 2, 4, 5, 6, 7, 9, 11}
    assert len(lines) == 8


def test_shorter_ttls_shorten_what_must_fit_into_them(tmp_path: Path) -> None:
    flags = {"session.ttl_ms": "3000", "membership.shown_ms": "6000", "data": str(tmp_path)}
    settings = effective_settings(flags=flags, environment={}, directory=tmp_path).settings
    session, membership = settings.agent.session, settings.agent.membership
    assert (session.renew_ms, session.margin_ms, session.stall_ms, session.retry_ms) == (1_000, 300, 2_000, 50)
    assert membership.heartbeat_ms == 2_000
    kept = effective_settings(flags={**flags, "session.ttl_ms": "60000"}, environment={}, directory=tmp_path).settings
    assert kept.agent.session.renew_ms == 10_000
    named = effective_settings(
        flags=flags, environment={"HOLDFAST_SESSION_RENEW_MS": "1500"}, directory=tmp_path
    ).settings
    assert named.agent.session.renew_ms == 1_500


@pytest.mark.parametrize(
    ("flags", "listens", "told"),
    [
        ({}, "127.0.0.1:0", "127.0.0.1:7000"),
        ({"kafka.listen": "0.0.0.0:9092"}, "0.0.0.0:0", "me:7000"),
        ({"kafka.listen": "0.0.0.0:9092", "kafka.advertise": "broker.example"}, "0.0.0.0:0", "broker.example:7000"),
        ({"peers.listen": "10.0.0.1:9300"}, "10.0.0.1:9300", "10.0.0.1:7000"),
        ({"peers.advertise": "inside.example:31000"}, "127.0.0.1:0", "inside.example:31000"),
        ({"peers.advertise": ":31000", "kafka.advertise": "outside"}, "127.0.0.1:0", "outside:31000"),
    ],
)
def test_agents_listen_beside_kafka_unless_told_otherwise(flags: dict[str, object], listens: str, told: str) -> None:
    settings = settle(flags).settings
    assert str(settings.peer_address) == listens
    bound = Address(settings.peer_address.host, 7000)
    assert str(settings.advertised_peer(bound, host_name="me")) == told


def test_a_wrong_address_for_agents_is_refused_by_name() -> None:
    with pytest.raises(InvalidError, match=r"peers\.listen \(from flag --peer\) 'nowhere': must be HOST:PORT"):
        settle({"peers.listen": "nowhere"})


def test_one_certificate_is_for_every_port_and_each_may_have_its_own() -> None:
    common: dict[str, object] = {"tls.cert": "node.pem", "tls.key": "node.key"}
    settings = settle({**common, "http.tls_cert": "web.pem", "http.tls_key": "web.key"}).settings
    assert (settings.kafka.tls_cert, settings.text.tls_key) == ("node.pem", "node.key")
    assert (settings.http.tls_cert, settings.http.tls_key) == ("web.pem", "web.key")
    assert settings.agent.peers.tls is None, "between agents it is mutual, which takes authorities"
    settings = settle({**common, "tls.ca": "ca.pem", "kafka.tls_cert": "off"}).settings
    peers = settings.agent.peers
    assert (peers.tls_cert, peers.tls_key, peers.tls_ca) == ("node.pem", "node.key", "ca.pem")
    assert (settings.kafka.tls, settings.text.tls_ca) == (None, "ca.pem")
    refused: list[tuple[dict[str, object], str]] = [
        ({"tls.cert": "node.pem"}, "tls.key"),
        ({"peers.tls_cert": "a", "peers.tls_key": "b"}, "peers.tls_ca"),
        ({"http.tls_cert": "a"}, "http.tls_key"),
    ]
    for flags, says in refused:
        with pytest.raises(HoldfastError, match=says):
            settle(flags)
