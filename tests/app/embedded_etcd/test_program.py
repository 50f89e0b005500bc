"""Which etcd programs are run, and with which settings."""

from pathlib import Path

import pytest

from holdfast.app.config import ServeSettings
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.app.embedded_etcd.place import member_place, opened_store_url
from holdfast.app.embedded_etcd.program import command_line, find_program
from holdfast.stores.etcd.versions import known_fault, parse_version
from holdfast.vocabulary.errors import InvalidError, UsageError


def reporting(directory: Path, version: str) -> str:
    program = directory / f"etcd-{version}"
    program.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    program.chmod(0o755)
    return str(program)


def settings(directory: Path, store: str = "etcd:embedded", **etcd: object) -> ServeSettings:
    return ServeSettings(data=directory, store=store, objects="memory:", etcd=EtcdMemberSettings(**etcd))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("3.4.20", "single member"),
        ("3.4.21", ""),
        ("3.5.0", "killed"),
        ("3.5.2", "killed"),
        ("3.5.4", "single member"),
        ("3.5.5", "defragments"),
        ("3.5.6", ""),
        ("3.6.1", ""),
    ],
)
def test_versions_that_are_known_to_lose_data_are_refused_with_the_reason(
    version: str, fault: str, tmp_path: Path
) -> None:
    assert fault in known_fault(parse_version(version))
    assert bool(fault) == bool(known_fault(parse_version(version)))
    program = reporting(tmp_path, version)
    if fault:
        with pytest.raises(UsageError, match=fault):
            find_program(member_place(settings(tmp_path, program=program), "n"))
    unsafe = member_place(settings(tmp_path, "etcd:embedded?unsafe=1", program=program), "n")
    assert find_program(unsafe) == Path(program)


def test_a_missing_program_and_one_that_is_not_etcd_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such-etcd on PATH"):
        find_program(member_place(settings(tmp_path, program="no-such-etcd"), "n"))
    with pytest.raises(UsageError, match="reports no version"):
        find_program(member_place(settings(tmp_path, program="true"), "n"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"peer_listen": "127.0.0.1:0"},
        {"client_listen": "nowhere"},
        {"join": "n1:x"},
        {"name": "a,b"},
        {"cert": "only.pem"},
        {"quota_bytes": 1},
        {"election_ms": 100},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidError):
        EtcdMemberSettings(**wrong)  # type: ignore[arg-type]


def test_the_url_of_the_store_leads_to_the_member_and_its_clients_learn_of_the_others(tmp_path: Path) -> None:
    plain = settings(tmp_path, "etcd:embedded?unsafe=1", client_listen="127.0.0.1:4001")
    assert opened_store_url(plain) == "etcd://127.0.0.1:4001?members_every_ms=5000&unsafe=1"
    tls = settings(tmp_path, ca="/ca", cert="/cert", key="/key", client_advertise="n1:5000")
    assert opened_store_url(tls) == "etcds://n1:5000?members_every_ms=5000&ca=/ca&cert=/cert&key=/key"
    assert opened_store_url(settings(tmp_path, "sqlite:///x.db")) == "sqlite:///x.db"


def test_the_command_line_has_quota_compaction_and_what_peers_need(tmp_path: Path) -> None:
    place = member_place(settings(tmp_path, name="n1", peer_advertise="n1.internal"), "unused")
    argv = command_line(Path("etcd"), place, {"initial-cluster-state": "new"})
    assert "--initial-advertise-peer-urls=http://n1.internal:2380" in argv
    assert "--quota-backend-bytes=2147483648" in argv
    assert "--auto-compaction-retention=10m" in argv
    assert f"--data-dir={tmp_path}/etcd" in argv
    assert "--initial-cluster-state=new" in argv
