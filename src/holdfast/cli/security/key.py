"""`holdfast key`: API keys for HTTP, the text protocol and Kafka's SASL PLAIN. A secret is shown once; it is stored nowhere."""

import argparse
import re
from typing import Final

from holdfast.cli.arguments import Parser, Parsers, add_family, add_yes, confirmed
from holdfast.cli.cluster.access import add_cluster_command
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_rows
from holdfast.cli.security.access import administering_keys
from holdfast.security.api_keys import DEFAULT_SCOPES, ApiKey, Scope, parse_scopes
from holdfast.security.principals import Principal
from holdfast.vocabulary.errors import InvalidError

COLUMNS: Final = ("prefix", "name", "principal", "scopes", "created_at_ms", "expires_at_ms", "last_used_at_ms")
_UNITS_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    family = add_family(commands, "key", "create, list and revoke API keys")
    create = add_cluster_command(
        family,
        "create",
        run_create,
        does="create an API key",
        description="Creates an API key and prints its secret, once. It acts for a principal, whose ACLs say what it may do, "
        "within its scopes. It counts on every node within a moment.",
    )
    create.add_argument("key_name", metavar="NAME", help="what the key is for")
    create.add_argument("--principal", metavar="PRINCIPAL", help="for whom it acts (default: User:NAME)")
    create.add_argument(
        "--scopes",
        metavar="SCOPES",
        default=",".join(DEFAULT_SCOPES),
        help=f"what it may be used for at most, of {','.join(Scope)} (default: {','.join(DEFAULT_SCOPES)})",
    )
    create.add_argument("--expires", metavar="DURATION", help="for how long it is good, such as 90d, 12h or 30m")
    add_cluster_command(
        family, "list", run_list, does="list API keys", description="Lists keys, without their secrets."
    )
    revoke = add_cluster_command(
        family,
        "revoke",
        run_revoke,
        does="revoke an API key",
        description="Revokes a key: requests, streams and connections with it end within seconds, on every node.",
    )
    revoke.add_argument("prefix", metavar="PREFIX", help="the part of the key between hf_ and the next _")
    add_yes(revoke)


async def run_create(args: argparse.Namespace) -> int:
    """Make a key, and show its secret."""
    principal = Principal.parse("--principal", args.principal or f"User:{args.key_name}")
    scopes = parse_scopes("--scopes", args.scopes)
    lasts_ms = _duration_ms(args.expires)
    async with administering_keys(args) as (keys, clock):
        expires_at_ms = clock.now_ms() + lasts_ms if lasts_ms else 0
        made, _ = await keys.create(args.key_name, principal, scopes, expires_at_ms=expires_at_ms)
    if args.json:
        print_json({**_row(made.key), "secret": made.secret})
        return OK
    print_line(f"key {made.key.prefix} acts for {principal}, to {', '.join(sorted(scopes))}")
    print_line(f"secret: {made.secret}")
    print_line("It is not stored and cannot be shown again.")
    return OK


async def run_list(args: argparse.Namespace) -> int:
    """Print keys."""
    async with administering_keys(args) as (keys, _):
        found = await keys.keys()
    print_rows("keys", [_row(key) for key in found], COLUMNS, as_json=args.json)
    return OK


async def run_revoke(args: argparse.Namespace) -> int:
    """Delete a key."""
    if not confirmed(args, f"Revoke key {args.prefix}?"):
        return FAILED
    async with administering_keys(args) as (keys, _):
        await keys.revoke(args.prefix)
    if args.json:
        print_json({"prefix": args.prefix, "revoked": True})
    else:
        print_line(f"key {args.prefix} revoked")
    return OK


def _duration_ms(text: str | None) -> int:
    if text is None:
        return 0
    found = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if found is None or not int(found[1]):
        raise InvalidError("--expires", text, "a number and m, h or d, such as 90d")
    return int(found[1]) * _UNITS_MS[found[2]]


def _row(key: ApiKey) -> dict[str, object]:
    return {
        "prefix": key.prefix,
        "name": key.name,
        "principal": str(key.principal),
        "scopes": sorted(key.scopes),
        "created_at_ms": key.created_at_ms,
        "expires_at_ms": key.expires_at_ms,
        "last_used_at_ms": key.last_used_at_ms,
    }
