"""`holdfast user`: who can log in. A password is read from stdin, or made up and shown once; it is stored nowhere."""

import argparse
import sys
from typing import Final

from holdfast.cli.arguments import Parser, Parsers, add_family, add_yes, confirmed, parse_int
from holdfast.cli.cluster.access import add_cluster_command
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_rows
from holdfast.cli.security.access import administering_security
from holdfast.security.scram import ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, credential_of
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_one_of

_SALT_BYTES: Final = 16
_PASSWORD_BYTES_MAX: Final = 1_024


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    family = add_family(commands, "user", "create, list and delete users")
    create = add_cluster_command(
        family,
        "create",
        run_create,
        does="create a user, or set a new password",
        description="Creates a user for logins with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. Without --password-stdin a password is "
        "made up and printed, once. It counts on every node within a moment, without a restart.",
    )
    create.add_argument("user", metavar="NAME", help="the user's name; as a principal it is User:NAME")
    create.add_argument("--password-stdin", action="store_true", help="read the password from stdin, one line")
    create.add_argument("--change", action="store_true", help="set a new password if the user exists; open logins end")
    create.add_argument(
        "--mechanism",
        action="append",
        metavar="NAME",
        help=f"one of {', '.join(ScramMechanism)}; may be repeated (default: all)",
    )
    create.add_argument(
        "--iterations",
        metavar="N",
        help=f"how slow the password is to try out, {ITERATIONS_MIN} to {ITERATIONS_MAX} (default: {ITERATIONS_DEFAULT})",
    )
    add_cluster_command(
        family, "list", run_list, does="list users and their mechanisms", description="Lists who can log in."
    )
    delete = add_cluster_command(
        family,
        "delete",
        run_delete,
        does="delete a user",
        description="Deletes a user; open logins end within a moment. ACLs of the user stay: see `holdfast acl delete`.",
    )
    delete.add_argument("user", metavar="NAME", help="the user's name")
    add_yes(delete)


async def run_create(args: argparse.Namespace) -> int:
    """Make the credentials, and store them."""
    iterations = parse_int(args.iterations, "--iterations") or ITERATIONS_DEFAULT
    mechanisms = _mechanisms(args.mechanism)
    async with administering_security(args) as (security, random):
        password = _read_password() if args.password_stdin else random.token() + random.token()
        credentials = [credential_of(each, password, salt=_salt(random), iterations=iterations) for each in mechanisms]
        await security.set_credentials(args.user, credentials, create=not args.change, replace=args.change)
    shown = {} if args.password_stdin else {"password": password}
    if args.json:
        print_json({"user": args.user, "mechanisms": mechanisms, **shown})
        return OK
    print_line(f"user {args.user} can log in with {', '.join(mechanisms)}")
    if shown:
        print_line(f"password: {password}")
        print_line("It is not stored and cannot be shown again.")
    return OK


async def run_list(args: argparse.Namespace) -> int:
    """Print users."""
    async with administering_security(args) as (security, _):
        users = await security.users()
    rows = [
        {
            "user": user.name,
            "mechanisms": [str(each.mechanism) for each in user.credentials],
            "iterations": sorted({each.iterations for each in user.credentials}),
        }
        for user in users
    ]
    print_rows("users", rows, ("user", "mechanisms", "iterations"), as_json=args.json)
    return OK


async def run_delete(args: argparse.Namespace) -> int:
    """Delete a user."""
    if not confirmed(args, f"Delete user {args.user}?"):
        return FAILED
    async with administering_security(args) as (security, _):
        deleted = await security.delete_credentials(args.user) is not None
    if not deleted:
        raise InvalidError("user", args.user, "a user that exists")
    if args.json:
        print_json({"user": args.user, "deleted": True})
    else:
        print_line(f"user {args.user} deleted")
    return OK


def _mechanisms(given: list[str] | None) -> list[ScramMechanism]:
    for name in given or ():
        check_one_of("--mechanism", name, tuple(ScramMechanism))
    return [each for each in ScramMechanism if given is None or each in given]


def _read_password() -> str:
    password = sys.stdin.readline(_PASSWORD_BYTES_MAX + 1).rstrip("\r\n")
    if not password or len(password.encode()) > _PASSWORD_BYTES_MAX:
        raise InvalidError(
            "password", f"{len(password)} characters", f"one line of 1 to {_PASSWORD_BYTES_MAX} bytes on stdin"
        )
    return password


def _salt(random: Random) -> bytes:
    return bytes.fromhex(random.token() + random.token())[:_SALT_BYTES]
