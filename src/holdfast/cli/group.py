"""`holdfast group …`: consumer groups of any Kafka cluster."""

import argparse
import re

from holdfast.cli.arguments import add_family, parse_int
from holdfast.cli.kafka.connection import connect
from holdfast.cli.kafka.options import add_command, bootstrap_from
from holdfast.cli.output import OK, print_json, print_line, print_outcomes, print_rows, print_table
from holdfast.client.admin.positions import POSITIONS, parse_position
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.host_port import join_host_port

STATE_NAMES = ("stable", "empty", "preparing", "completing", "dead")
MEMBER_COLUMNS = ("member", "client_id", "host", "instance_id", "partitions")
PROGRESS_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member")
MOVE_COLUMNS = ("topic", "partition", "committed", "to", "change")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "group", "list, describe, reset and delete consumer groups of any Kafka cluster")
    listing = add_command(
        actions, "list", "list groups and their states", "  holdfast group list\n  holdfast group list --state stable\n"
    )
    listing.add_argument(
        "--state", action="append", default=[], choices=STATE_NAMES, help="only groups in this state; may be repeated"
    )
    listing.add_argument("--json", action="store_true", help="one JSON object per group")
    listing.set_defaults(run=run_list)
    describe = add_command(
        actions,
        "describe",
        "show a group's members, their partitions, and the lag",
        "  holdfast group describe billing\n  holdfast group describe billing --json\n",
    )
    describe.add_argument("group", metavar="GROUP")
    describe.add_argument("--json", action="store_true", help="one JSON object")
    describe.set_defaults(run=run_describe)
    reset = add_command(
        actions,
        "reset",
        "set a group's committed offsets; a dry run without --execute",
        "  holdfast group reset billing --topic orders --to earliest\n"
        "  holdfast group reset billing --topic orders --to -1h --execute\n"
        "  holdfast group reset billing --topic orders --partition 3 --shift -100 --execute\n\n" + POSITIONS,
        about="Sets the committed offsets of a group. Refused while the group has active members. An offset outside of the "
        "partition's range is moved to the nearer end. The group is created if it does not exist.",
    )
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("--topic", action="append", required=True, metavar="TOPIC", help="may be repeated")
    reset.add_argument("--partition", action="append", default=[], metavar="N", help="default: all; may be repeated")
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="POSITION", help="earliest, latest, an offset, a time, or how long ago")
    target.add_argument("--shift", metavar="±N", help="forward or back by N from the committed offset")
    reset.add_argument("--execute", action="store_true", help="apply the change")
    reset.add_argument("--json", action="store_true", help="one JSON object per partition")
    reset.set_defaults(run=run_reset)
    delete = add_command(
        actions,
        "delete",
        "delete groups and their committed offsets",
        "  holdfast group delete billing\n",
        about="Deletes groups and their committed offsets. Refused while a group has active members.",
    )
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.add_argument("--json", action="store_true", help="one JSON object per group")
    delete.set_defaults(run=run_delete)


def run_list(args: argparse.Namespace) -> int:
    """Print one group per line."""
    bootstrap = bootstrap_from(args)
    from holdfast.client.admin.groups import list_groups, state_name

    rows = [
        {"group": found.group_id, "state": state_name(found), "simple": found.is_simple_consumer_group}
        for found in list_groups(connect(bootstrap), args.state)
    ]
    print_rows("groups", rows, ("group", "state"), as_json=args.json)
    return OK


def run_describe(args: argparse.Namespace) -> int:
    """Print the group, its members and its lag."""
    bootstrap = bootstrap_from(args)
    from holdfast.client.admin.groups import describe_group, progress_of, state_name
    from holdfast.client.types import KafkaRefusedError

    connection = connect(bootstrap)
    found = describe_group(connection, args.group)
    if found is None:
        raise KafkaRefusedError("group", args.group, f"does not exist at {bootstrap}")
    progress = [row._asdict() for row in progress_of(connection, args.group, found)]
    members = [
        {
            "member": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "instance_id": member.group_instance_id,
            "partitions": [f"{place.topic}-{place.partition}" for place in sorted(member.assignment.topic_partitions)],
        }
        for member in found.members
    ]
    lag = sum(row["lag"] or 0 for row in progress)
    about = {"group": args.group, "state": state_name(found), "assignor": found.partition_assignor or None}
    if args.json:
        coordinator = join_host_port(found.coordinator.host, found.coordinator.port) if found.coordinator else None
        print_json({**about, "coordinator": coordinator, "members": members, "partitions": progress, "lag": lag})
    else:
        print_table(f"members of {args.group}", members, MEMBER_COLUMNS)
        print_table(f"progress of {args.group}", progress, PROGRESS_COLUMNS)
        print_line(f"{args.group} is {about['state']}, total lag {lag}")
    return OK


def run_reset(args: argparse.Namespace) -> int:
    """Print what would change, or change it and print what did."""
    bootstrap = bootstrap_from(args)
    to = None if args.to is None else parse_position(args.to, option="--to", now_ms=RealClock().now_ms())
    if args.shift is not None and not re.fullmatch(r"[+-]?\d{1,18}", args.shift):
        raise InvalidError("--shift", args.shift, "an integer such as +10 or -10")
    from holdfast.client.admin.groups import apply_reset, plan_reset, require_no_members

    connection = connect(bootstrap)
    if args.execute:
        require_no_members(connection, args.group)
    moves = plan_reset(
        connection,
        args.group,
        topics=list(dict.fromkeys(args.topic)),
        partitions=[parse_int(number, "--partition") or 0 for number in args.partition],
        to=to,
        shift=None if args.shift is None else int(args.shift),
    )
    if args.execute:
        apply_reset(connection, args.group, moves)
    rows = [{**move._asdict(), "done": args.execute} for move in moves]
    print_rows(f"reset of {args.group}", rows, MOVE_COLUMNS, as_json=args.json)
    if not args.json:
        print_line("Done." if args.execute else "Nothing was changed. Add --execute to apply.")
    return OK


def run_delete(args: argparse.Namespace) -> int:
    """Delete groups; the code is that of the first that could not be deleted."""
    bootstrap = bootstrap_from(args)
    from holdfast.client.admin.groups import delete_groups

    return print_outcomes(delete_groups(connect(bootstrap), args.groups), "group", "deleted", as_json=args.json)
