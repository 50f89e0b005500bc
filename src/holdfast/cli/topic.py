"""`holdfast topic …`: topics of any Kafka cluster."""

import argparse
from collections.abc import Mapping

from holdfast.cli.arguments import add_family, add_yes, confirmed, parse_int, parse_pairs
from holdfast.cli.kafka.connection import connect
from holdfast.cli.kafka.options import add_command, bootstrap_from
from holdfast.cli.output import OK, print_json, print_line, print_outcomes, print_rows, print_table
from holdfast.vocabulary.errors import UsageError

PARTITION_COLUMNS = ("partition", "leader", "epoch", "earliest", "latest", "records")
SETTING_COLUMNS = ("name", "value", "source", "default")

_PARTITIONS_MAX = 100_000  # librdkafka's own; a cluster may allow fewer, and says so


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(
        commands, "topic", "create, list, describe, alter, configure and delete topics of any Kafka cluster"
    )
    create = add_command(
        actions,
        "create",
        "create a topic",
        "  holdfast topic create orders --partitions 12\n"
        "  holdfast topic create users --partitions 3 --config cleanup.policy=compact --if-not-exists\n",
    )
    create.add_argument("name", metavar="NAME", help="1 to 249 of a-z A-Z 0-9 . _ -")
    create.add_argument(
        "--partitions", metavar="N", required=True, help="how many; more can be added later, none removed"
    )
    create.add_argument(
        "--replication-factor", metavar="N", help="replicas of each partition; default: the cluster's default"
    )
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    create.add_argument("--if-not-exists", action="store_true", help="succeed if the topic exists")
    create.add_argument("--json", action="store_true", help="one JSON object")
    create.set_defaults(run=run_create)
    listing = add_command(actions, "list", "list topics", "  holdfast topic list\n  holdfast topic list --json\n")
    listing.add_argument("--internal", action="store_true", help="include internal topics")
    listing.add_argument("--json", action="store_true", help="one JSON object per topic")
    listing.set_defaults(run=run_list)
    describe = add_command(
        actions,
        "describe",
        "show partitions with leaders, epochs and offsets, and the topic's own settings",
        "  holdfast topic describe orders\n  holdfast topic describe orders users --json\n",
    )
    describe.add_argument("names", metavar="NAME", nargs="+")
    describe.add_argument("--json", action="store_true", help="one JSON object per topic")
    describe.set_defaults(run=run_describe)
    alter = add_command(
        actions,
        "alter",
        "add partitions to a topic, or change its number of replicas",
        "  holdfast topic alter orders --partitions 24\n  holdfast topic alter orders --replication-factor 3\n",
    )
    alter.add_argument("name", metavar="NAME")
    alter.add_argument(
        "--partitions",
        metavar="N",
        help="how many it shall have in all; keys may change their partition",
    )
    alter.add_argument(
        "--replication-factor",
        metavar="N",
        help="how many agents keep what is not in object storage yet: 1 to 3 (Holdfast clusters only)",
    )
    alter.add_argument("--json", action="store_true", help="one JSON object")
    alter.set_defaults(run=run_alter)
    delete = add_command(
        actions,
        "delete",
        "delete topics and all their records",
        "  holdfast topic delete orders\n  holdfast topic delete orders users --yes\n",
    )
    delete.add_argument("names", metavar="NAME", nargs="+")
    add_yes(delete)
    delete.add_argument("--json", action="store_true", help="one JSON object per topic")
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
    """Create a topic; returns once every partition has a leader."""
    partitions, factor = (
        parse_int(args.partitions, "--partitions", least=1, most=_PARTITIONS_MAX),
        parse_int(args.replication_factor, "--replication-factor", least=1),
    )
    config, bootstrap = dict(parse_pairs(args.config, "--config")), bootstrap_from(args)
    from holdfast.client.admin.topics import create_topic
    from holdfast.client.types import KafkaRefusedError

    created = create_topic(
        connect(bootstrap),
        args.name,
        partitions=partitions or 1,
        replication_factor=factor or -1,
        config=config,
    )
    if not created and not args.if_not_exists:
        raise KafkaRefusedError("topic", args.name, f"exists already at {bootstrap}")
    done = f"created with {partitions} partition{'s' if partitions != 1 else ''}" if created else "exists already"
    if args.json:
        print_json({"name": args.name, "created": created, "partitions": partitions})
    else:
        print_line(f"{args.name} {done}")
    return OK


def run_list(args: argparse.Namespace) -> int:
    """Print one topic per line."""
    bootstrap = bootstrap_from(args)
    from holdfast.client.admin.topics import list_topics

    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "internal": topic.is_internal,
            "id": str(topic.topic_id),
        }
        for topic in list_topics(connect(bootstrap))
        if args.internal or not topic.is_internal
    ]
    columns = ("name", "partitions", "internal") if args.internal else ("name", "partitions")
    print_rows("topics", rows, columns, as_json=args.json)
    return OK


def run_describe(args: argparse.Namespace) -> int:
    """Print each topic's partitions and its own settings."""
    bootstrap = bootstrap_from(args)
    from holdfast.client.admin.topics import TOPIC_SOURCE, partition_rows, topic_settings

    connection = connect(bootstrap)
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


def run_alter(args: argparse.Namespace) -> int:
    """Add partitions, which have leaders when it returns; change the number of replicas, which is then under way."""
    partitions, factor = (
        parse_int(args.partitions, "--partitions", least=1, most=_PARTITIONS_MAX),
        parse_int(args.replication_factor, "--replication-factor", least=1),
    )
    if partitions is None and factor is None:
        raise UsageError("nothing to change: give --partitions or --replication-factor")
    bootstrap = bootstrap_from(args)
    from holdfast.client.admin.topics import add_partitions, set_replication_factor

    connection, done = connect(bootstrap), dict[str, object]()
    if factor is not None:
        done["replication_factor"] = factor = set_replication_factor(connection, args.name, factor)
    if partitions is not None:
        add_partitions(connection, args.name, partitions)
        done["partitions"] = partitions
    if args.json:
        print_json({"name": args.name, **done})
    else:
        shown = {"replication_factor": f"a replication factor of {factor}", "partitions": f"{partitions} partitions"}
        print_line(f"{args.name} has {' and '.join(shown[each] for each in done)}")
    return OK


def _print_topic(name: str, rows: list[dict[str, object]], own: Mapping[str, str | None]) -> None:
    print_table(name, rows, PARTITION_COLUMNS)
    counts = [row["records"] for row in rows if isinstance(row["records"], int)]
    shown = ", ".join(f"{key}={value}" for key, value in own.items()) or "nothing"
    print_line(f"{sum(counts)} records; set on this topic: {shown}\n")


def run_delete(args: argparse.Namespace) -> int:
    """Delete topics after asking; the code is that of the first that could not be deleted."""
    names, bootstrap = list(dict.fromkeys(args.names)), bootstrap_from(args)
    from holdfast.client.admin.topics import delete_topics

    connection = connect(bootstrap)
    if not confirmed(args, f"Delete {', '.join(names)} at {bootstrap} with all records?"):
        print_line("Nothing was deleted.")
        return OK
    return print_outcomes(delete_topics(connection, names), "name", "deleted", as_json=args.json)


def run_config(args: argparse.Namespace) -> int:
    """Print every setting, or change some and print those."""
    to, bootstrap = dict(parse_pairs(args.set, "--set")), bootstrap_from(args)
    if both := sorted({*to} & {*args.unset}):
        raise UsageError(f"--set and --unset both name {both[0]}: give one of them")
    from holdfast.client.admin.topics import alter_topic_settings, topic_settings

    connection = connect(bootstrap)
    connection.describe([args.name])
    if to or args.unset:
        settings = alter_topic_settings(connection, args.name, to=to, unset=args.unset)
    else:
        settings = topic_settings(connection, [args.name])[args.name]
    rows = [setting._asdict() for setting in settings]
    print_rows(f"settings of {args.name}", rows, SETTING_COLUMNS, as_json=args.json)
    return OK
