"""`holdfast quota`: how much clients may take of each node."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.cli.arguments import Parser, Parsers, add_family, add_yes, confirmed, parse_number
from holdfast.cli.cluster.access import add_cluster_command
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_rows
from holdfast.cli.settings_flags import effective_settings_for
from holdfast.security.client_quotas import DEFAULT, Limits, Quota, QuotaEntity, canonical_ip
from holdfast.security.quota_store import QuotaStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.random import SystemRandom

# flag → the quota it sets, its unit, and what it is
_FLAGS: Final = {
    "produce": (Quota.PRODUCE, "BYTES", "bytes per second that may be written"),
    "consume": (Quota.FETCH, "BYTES", "bytes per second that may be read"),
    "request": (Quota.REQUEST, "PERCENT", "share of a core that requests may take, in percent"),
    "connections": (Quota.CONNECTIONS, "RATE", "connections per second that an address may make"),
}
_MOST: Final = 1e15
_DEFAULT_NAME: Final = "(default)"
_THE_DEFAULT: Final = object()  # an empty name that is given by mistake is not this


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    family = add_family(commands, "quota", "set, list and remove quotas of Kafka's clients")
    setting = add_cluster_command(
        family,
        "set",
        run_set,
        does="limit what a user, client id or IP address may take",
        description="Sets limits of a user, a client id, a client id of a user, or an IP address; others of theirs stay. They "
        "count on every node within a moment, for each node by itself, as in Kafka. The most specific limit counts.",
    )
    _add_entity(setting)
    for flag, (_, unit, does) in _FLAGS.items():
        setting.add_argument(f"--{flag}", metavar=unit, help=does)
    add_cluster_command(family, "list", run_list, does="list quotas", description="Lists every quota.")
    remove = add_cluster_command(
        family,
        "remove",
        run_remove,
        does="remove quotas",
        description="Removes the limits of a user, a client id, a client id of a user, or an IP address: all, or those that the "
        "flags name.",
    )
    _add_entity(remove)
    for flag, (_, _, does) in _FLAGS.items():
        remove.add_argument(f"--{flag}", action="store_true", help=f"the {does}")
    add_yes(remove)


def _add_entity(parser: Parser) -> None:
    for kind, dest, metavar, whose in (
        ("user", "user", "NAME", "users"),
        ("client-id", "client_id", "NAME", "client ids"),
        ("ip", "ip", "ADDRESS", "IP addresses"),
    ):
        either = parser.add_mutually_exclusive_group()
        either.add_argument(f"--{kind}", dest=dest, metavar=metavar, help=f"limits of this {kind}")
        either.add_argument(
            f"--{kind}-default",
            dest=dest,
            action="store_const",
            const=_THE_DEFAULT,
            help=f"limits of each of those {whose} that have none of their own",
        )


@asynccontextmanager
async def _administering_quotas(args: argparse.Namespace) -> AsyncIterator[QuotaStore]:
    """Quotas of the cluster that the flags name."""
    settings = effective_settings_for(args).settings
    clock, random = RealClock(), SystemRandom()
    async with open_store(opened_store_url(settings), clock=clock, random=random, create=False) as store:
        yield QuotaStore(store, clock=clock, random=random)


async def run_set(args: argparse.Namespace) -> int:
    """Set the limits that are named."""
    limits: dict[Quota, float | None] = {
        quota: parse_number(text, f"--{flag}", above=0, most=_MOST)
        for flag, (quota, _, _) in _FLAGS.items()
        if (text := getattr(args, flag)) is not None
    }
    entity = _entity(args)
    if not limits:
        raise UsageError("nothing to set: name --produce, --consume, --request or --connections")
    async with _administering_quotas(args) as quotas:
        await quotas.alter(entity, limits)
        found = (await quotas.quotas()).get(entity, {})
    _print("quota", [_row(entity, found)], as_json=args.json)
    return OK


async def run_list(args: argparse.Namespace) -> int:
    """Print every quota."""
    async with _administering_quotas(args) as quotas:
        found = await quotas.quotas()
    _print("quotas", [_row(entity, limits) for entity, limits in found.items()], as_json=args.json)
    return OK


async def run_remove(args: argparse.Namespace) -> int:
    """Remove limits of one entity."""
    entity = _entity(args)
    named = [quota for flag, (quota, _, _) in _FLAGS.items() if getattr(args, flag)] or list(Quota)
    if not confirmed(args, f"Remove quotas of {entity}?"):
        return FAILED
    async with _administering_quotas(args) as quotas:
        removed = await quotas.alter(entity, dict.fromkeys(named)) > 0
    if not removed:
        raise InvalidError("quota entity", str(entity), "one that has such a quota")
    if args.json:
        print_json({**_entity_row(entity), "removed": [str(each) for each in named]})
    else:
        print_line(f"quotas of {entity} removed")
    return OK


def _entity(args: argparse.Namespace) -> QuotaEntity:
    if "" in (args.user, args.client_id, args.ip):
        raise UsageError(
            "an empty name: --user-default, --client-id-default and --ip-default are for those without a quota of their own"
        )
    ip = _named(args.ip)
    entity = QuotaEntity(_named(args.user), _named(args.client_id), canonical_ip(ip) if ip else ip)
    if entity == QuotaEntity():
        raise UsageError("whose quota: name --user, --client-id or both, or --ip")
    return entity


def _named(given: str | object | None) -> str | None:
    return given if isinstance(given, str) or given is None else DEFAULT


def _row(entity: QuotaEntity, limits: Limits) -> dict[str, object]:
    return {**_entity_row(entity), **{quota: limits.get(quota) for quota in Quota}}


def _entity_row(entity: QuotaEntity) -> dict[str, object]:
    return {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}


def _print(title: str, rows: list[dict[str, object]], *, as_json: bool) -> None:
    if not as_json:
        rows = [{key: _DEFAULT_NAME if value == DEFAULT else value for key, value in row.items()} for row in rows]
    print_rows(title, rows, ("user", "client_id", "ip", *Quota), as_json=as_json)
