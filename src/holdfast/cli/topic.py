"""`holdfast topic …`: topics of any Kafka cluster."""

import argparse
import sys
from collections.abc import Mapping

from holdfast.cli.kafka.options import add_command, bootstrap_from, parse_int, parse_pairs
from holdfast.cli.output import OK, console, exit_code, print_error, print_json, print_table
from holdfast.vocabulary.errors import HoldfastError, InvalidError

PARTITION_COLUMNS = ("partition", "leader", "epoch", "earliest", "latest", "records")
SETTING_COLUMNS = ("name", "value", "source", "default")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    topic = commands.add_parser(
        "topic", help="create, list, describe, configure and delete topics of any Kafka cluster"
    )
    actions = topic.add_subparsers(dest="action", required=True, metavar="COMMAND")
    create = add_command(
        actions,
        "create",
        "create a topic",
        "  holdfast topic create orders --partitions 12\n"
        "  holdfast topic create users --partitions 3 --config cleanup.policy=compact --if-not-exists\n",
    )
    create.add_argument("name", metavar="NAME", help="1 to 249 of a-z A-Z 0-9 . _ -")
    create.add_argument("--partitions", metavar="N", required=True, help="how many; it stays so for the topic's life")
    create.add_argument("--replication-factor", metavar="N", help="default: what the cluster does")
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    create.add_argument("--if-not-exists", action="store_true", help="do nothing if there is a topic of that name")
    create.set_defaults(run=run_create)
    listing = add_command(actions, "list", "list topics", "  holdfast topic list\n  holdfast topic list --json\n")
    listing.add_argument("--internal", action="store_true", help="also those that the cluster made for itself")
    listing.add_argument("--json", action="store_true", help="one JSON object per topic")
    listing.set_defaults(run=run_list)
    describe = add_command(
        actions,
        "describe",
        "show partitions with leaders, epochs and offsets, and what is set",
        "  holdfast topic describe orders\n  holdfast topic describe orders users --json\n",
    )
    describe.add_argument("names", metavar="NAME", nargs="+")
    describe.add_argument("--json", action="store_true", help="one JSON object per topic")
    describe.set_defaults(run=run_describe)
    delete = add_command(
        actions,
        "delete",
        "delete topics and all their records",
        "  holdfast topic delete orders\n  holdfast topic delete orders users --yes\n",
    )
    delete.add_argument("names", metavar="NAME", nargs="+")
    delete.add_argument("--yes", action="store_true", help="do not ask; required where there is no terminal to ask on")
    delete.set_defaults(run=run_delete)
    config = add_command(
        actions,
        "config",
        "show a topic's settings, or change some",
        "  holdfast topic config orders\n"
        "  holdfast topic config orders --set retention.ms=86400000 --unset cleanup.policy\n",
    )
    config.add_argument("name", metavar="NAME")
    config.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    config.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="back to the default; may be repeated"
    )
    config.add_argument("--json", action="store_true", help="one JSON object per setting")
    config.set_defaults(run=run_config)


def run_create(args: argparse.Namespace) -> int:
    """Create a topic, and say so once it can be used."""
    partitions, factor = (
        parse_int(args.partitions, "--partitions", least=1),
        parse_int(args.replication_factor, "N", least=1),
    )
    config, bootstrap = dict(parse_pairs(args.config, "--config")), bootstrap_from(args)
    from holdfast.cli.kafka.topics import create_topic
    from holdfast.client.kafka_errors import KafkaRefusedError
    from holdfast.client.librdkafka import KafkaClient

    created = create_topic(
        KafkaClient(bootstrap),
        args.name,
        partitions=partitions or 1,
        replication_factor=factor or -1,
        config=config,
    )
    if not created and not args.if_not_exists:
        raise KafkaRefusedError("topic", args.name, f"exists already at {bootstrap}")
    done = f"created with {partitions} partition{'s' if partitions != 1 else ''}" if created else "exists already"
    console().print(f"{args.name} {done}", markup=False, soft_wrap=True)
    return OK


def run_list(args: argparse.Namespace) -> int:
    """Print one topic per line."""
    bootstrap = bootstrap_from(args)
    from holdfast.cli.kafka.topics import list_topics
    from holdfast.client.librdkafka import KafkaClient

    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "internal": topic.is_internal,
            "id": str(topic.topic_id),
        }
        for topic in list_topics(KafkaClient(bootstrap))
        if args.internal or not topic.is_internal
    ]
    if args.json:
        for row in rows:
            print_json(row)
    else:
        columns = ("name", "partitions", "internal") if args.internal else ("name", "partitions")
        print_table("topics", rows, columns)
    return OK


def run_describe(args: argparse.Namespace) -> int:
    """Print each topic's partitions and the settings that somebody set."""
    bootstrap = bootstrap_from(args)
    from holdfast.cli.kafka.topics import TOPIC_SOURCE, partition_rows, topic_settings
    from holdfast.client.librdkafka import KafkaClient

    connection = KafkaClient(bootstrap)
    described = connection.describe(args.names)
    partitions = partition_rows(connection, described.values())
    settings = topic_settings(connection, list(described))
    for name, topic in described.items():
        rows = [row._asdict() for row in partitions[name]]
        own = {setting.name: setting.value for setting in settings[name] if setting.source == TOPIC_SOURCE}
        if args.json:
            about = {"name": name, "id": str(topic.topic_id), "internal": topic.is_internal}
            print_json({**about, "partitions": rows, "config": own})
        else:
            _print_topic(name, rows, own)
    return OK


def _print_topic(name: str, rows: list[dict[str, object]], own: Mapping[str, str | None]) -> None:
    print_table(name, rows, PARTITION_COLUMNS)
    counts = [row["records"] for row in rows if isinstance(row["records"], int)]
    shown = ", ".join(f"{key}={value}" for key, value in own.items()) or "nothing"
    console().print(f"{sum(counts)} records; set on this topic: {shown}\n", markup=False, soft_wrap=True)


def run_delete(args: argparse.Namespace) -> int:
    """Delete topics after asking; the code is that of the first that could not be deleted."""
    names, bootstrap = list(dict.fromkeys(args.names)), bootstrap_from(args)
    from holdfast.cli.kafka.topics import delete_topics
    from holdfast.client.librdkafka import KafkaClient

    connection = KafkaClient(bootstrap)
    if not args.yes and not _confirmed(names, str(bootstrap)):
        console().print("Nothing was deleted.")
        return OK
    return print_outcomes(delete_topics(connection, names), "deleted")


def _confirmed(names: list[str], bootstrap: str) -> bool:
    if not sys.stdin.isatty():
        raise InvalidError("topic delete", "unasked", "with --yes, or on a terminal where it can ask")
    answer = input(f"Delete {', '.join(names)} at {bootstrap} with all records? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def print_outcomes(outcomes: Mapping[str, HoldfastError | None], done: str) -> int:
    """One line for each; the code of the first that failed."""
    for name, error in outcomes.items():
        if error is None:
            console().print(f"{name} {done}", markup=False, soft_wrap=True)
        else:
            print_error(error)
    return next((exit_code(error) for error in outcomes.values() if error is not None), OK)


def run_config(args: argparse.Namespace) -> int:
    """Print every setting, or change some and print those."""
    to, bootstrap = dict(parse_pairs(args.set, "--set")), bootstrap_from(args)
    if both := sorted({*to} & {*args.unset}):
        raise InvalidError("--unset", both[0], "a setting that is not set by the same call")
    from holdfast.cli.kafka.topics import alter_topic_settings, topic_settings
    from holdfast.client.librdkafka import KafkaClient

    connection = KafkaClient(bootstrap)
    connection.describe([args.name])
    if to or args.unset:
        settings = alter_topic_settings(connection, args.name, to=to, unset=args.unset)
    else:
        settings = topic_settings(connection, [args.name])[args.name]
    rows = [setting._asdict() for setting in settings]
    if args.json:
        for row in rows:
            print_json(row)
    else:
        print_table(f"settings of {args.name}", rows, SETTING_COLUMNS)
    return OK
