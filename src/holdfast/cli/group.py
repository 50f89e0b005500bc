"""`holdfast group …`: consumer groups of any Kafka cluster."""

import argparse
import re

from holdfast.cli.kafka.options import add_command, bootstrap_from, parse_int
from holdfast.cli.kafka.positions import POSITIONS, parse_position
from holdfast.cli.output import OK, console, print_json, print_table
from holdfast.cli.topic import print_outcomes
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

STATE_NAMES = ("stable", "empty", "preparing", "completing", "dead")
MEMBER_COLUMNS = ("member", "client_id", "host", "instance_id", "partitions")
PROGRESS_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member")
MOVE_COLUMNS = ("topic", "partition", "committed", "to", "change")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    group = commands.add_parser("group", help="list, describe, reset and delete consumer groups of any Kafka cluster")
    actions = group.add_subparsers(dest="action", required=True, metavar="COMMAND")
    listing = add_command(
        actions, "list", "list groups and their states", "  holdfast group list\n  holdfast group list --state stable\n"
    )
    listing.add_argument(
        "--state", action="append", default=[], choices=STATE_NAMES, help="only groups in it; may be repeated"
    )
    listing.add_argument("--json", action="store_true", help="one JSON object per group")
    listing.set_defaults(run=run_list)
    describe = add_command(
        actions,
        "describe",
        "show a group's members, what each reads, and how far behind it is",
        "  holdfast group describe billing\n  holdfast group describe billing --json\n",
    )
    describe.add_argument("group", metavar="GROUP")
    describe.add_argument("--json", action="store_true", help="one JSON object")
    describe.set_defaults(run=run_describe)
    reset = add_command(
        actions,
        "reset",
        "move a group to another position; without --execute only say what would change",
        "  holdfast group reset billing --topic orders --to beginning\n"
        "  holdfast group reset billing --topic orders --to -1h --execute\n"
        "  holdfast group reset billing --topic orders --partition 3 --shift -100 --execute\n\n" + POSITIONS,
        about="Moves where a group goes on reading. Refused while the group has active members. An offset outside of a "
        "partition is moved to its nearer end; a group that does not exist yet is made.",
    )
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("--topic", action="append", required=True, metavar="TOPIC", help="may be repeated")
    reset.add_argument("--partition", action="append", default=[], metavar="N", help="default: all; may be repeated")
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="POSITION", help="earliest, latest, an offset, a time, or how long ago")
    target.add_argument("--shift", metavar="±N", help="so many offsets on or back from where it is")
    reset.add_argument("--execute", action="store_true", help="do it")
    reset.add_argument("--json", action="store_true", help="one JSON object per partition")
    reset.set_defaults(run=run_reset)
    delete = add_command(
        actions,
        "delete",
        "delete groups and what they committed",
        "  holdfast group delete billing\n",
        about="Deletes groups and what they committed. Refused while a group has active members.",
    )
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.set_defaults(run=run_delete)


def run_list(args: argparse.Namespace) -> int:
    """Print one group per line."""
    bootstrap = bootstrap_from(args)
    from holdfast.cli.kafka.groups import list_groups, state_name
    from holdfast.client.librdkafka import KafkaClient

    rows = [
        {"group": found.group_id, "state": state_name(found), "simple": found.is_simple_consumer_group}
        for found in list_groups(KafkaClient(bootstrap), args.state)
    ]
    if args.json:
        for row in rows:
            print_json(row)
    else:
        print_table("groups", rows, ("group", "state"))
    return OK


def run_describe(args: argparse.Namespace) -> int:
    """Print the group, its members and its lag."""
    bootstrap = bootstrap_from(args)
    from holdfast.cli.kafka.groups import describe_group, progress_of, state_name
    from holdfast.client.kafka_errors import KafkaRefusedError
    from holdfast.client.librdkafka import KafkaClient

    connection = KafkaClient(bootstrap)
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
        coordinator = f"{found.coordinator.host}:{found.coordinator.port}" if found.coordinator else None
        print_json({**about, "coordinator": coordinator, "members": members, "partitions": progress, "lag": lag})
    else:
        print_table(f"members of {args.group}", members, MEMBER_COLUMNS)
        print_table(f"progress of {args.group}", progress, PROGRESS_COLUMNS)
        console().print(f"{args.group} is {about['state']}, total lag {lag}", markup=False, soft_wrap=True)
    return OK


def run_reset(args: argparse.Namespace) -> int:
    """Print what would change, or change it and print what did."""
    bootstrap = bootstrap_from(args)
    to = None if args.to is None else parse_position(args.to, option="--to", now_ms=RealClock().now_ms())
    if args.shift is not None and not re.fullmatch(r"[+-]?\d{1,18}", args.shift):
        raise InvalidError("--shift", args.shift, "a number such as +10 or -10")
    from holdfast.cli.kafka.groups import plan_reset, require_no_members, reset
    from holdfast.client.librdkafka import KafkaClient

    connection = KafkaClient(bootstrap)
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
        reset(connection, args.group, moves)
    rows = [move._asdict() for move in moves]
    if args.json:
        for row in rows:
            print_json({**row, "done": args.execute})
    else:
        print_table(f"reset of {args.group}", rows, MOVE_COLUMNS)
        console().print("Done." if args.execute else "Nothing was changed. Add --execute to do it.")
    return OK


def run_delete(args: argparse.Namespace) -> int:
    """Delete groups; the code is that of the first that could not be deleted."""
    bootstrap = bootstrap_from(args)
    from holdfast.cli.kafka.groups import delete_groups
    from holdfast.client.librdkafka import KafkaClient

    return print_outcomes(delete_groups(KafkaClient(bootstrap), args.groups), "deleted")
