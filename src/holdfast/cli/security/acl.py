"""`holdfast acl`: what users may do. An ACL allows or denies operations on resources; without one, nothing is allowed."""

import argparse
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from holdfast.cli.arguments import Parser, Parsers, add_family, add_yes, confirmed
from holdfast.cli.cluster.access import add_cluster_command
from holdfast.cli.output import FAILED, OK, print_line, print_rows
from holdfast.cli.security.access import administering_security
from holdfast.security.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_acl,
)
from holdfast.security.principals import Principal
from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.settings import check_one_of

COLUMNS: Final = ("principal", "permission", "operation", "resource", "name", "pattern", "host")

# flag → type and pattern of the resources it names
_RESOURCES: Final = {
    "topic": (ResourceType.TOPIC, PatternType.LITERAL),
    "topic_prefix": (ResourceType.TOPIC, PatternType.PREFIXED),
    "consumer_group": (ResourceType.GROUP, PatternType.LITERAL),
    "consumer_group_prefix": (ResourceType.GROUP, PatternType.PREFIXED),
    "transactional_id": (ResourceType.TRANSACTIONAL_ID, PatternType.LITERAL),
    "transactional_id_prefix": (ResourceType.TRANSACTIONAL_ID, PatternType.PREFIXED),
}


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    family = add_family(commands, "acl", "create, list and delete ACLs")
    create = add_cluster_command(
        family,
        "create",
        run_create,
        does="allow or deny something",
        description="Creates an ACL for each principal, operation and resource that is named. It counts on every node within a "
        "moment. Deny wins; READ, WRITE, DELETE and ALTER imply DESCRIBE.",
    )
    for flag, does in (("--allow", "who may"), ("--deny", "who may not, whatever else allows it")):
        create.add_argument(flag, action="append", default=[], metavar="PRINCIPAL", help=f"{does}: User:NAME or User:*")
    create.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{', '.join(Operation)}; separated by commas, or repeated",
    )
    _add_resources(create)
    create.add_argument("--host", default=ANY_HOST, help="the client's IP address (default: any)")
    listing = add_cluster_command(
        family, "list", run_list, does="list ACLs", description="Lists ACLs: all, or those that the flags name."
    )
    _add_filter(listing)
    delete = add_cluster_command(
        family,
        "delete",
        run_delete,
        does="delete ACLs",
        description="Deletes the ACLs that the flags name and prints them. It counts on every node within a moment.",
    )
    _add_filter(delete)
    add_yes(delete)


def _add_resources(parser: Parser) -> None:
    for name, (kind, pattern) in _RESOURCES.items():
        many = "every one whose name begins so" if pattern is PatternType.PREFIXED else "by name, or * for every one"
        parser.add_argument(
            "--" + name.replace("_", "-"), action="append", default=[], metavar="NAME", help=f"a {kind}: {many}"
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")


def _add_filter(parser: Parser) -> None:
    parser.add_argument("--principal", metavar="PRINCIPAL", help="those of User:NAME")
    parser.add_argument("--operation", metavar="NAME", help="those about an operation")
    _add_resources(parser)


async def run_create(args: argparse.Namespace) -> int:
    """Create all that are named."""
    who = [(Permission.ALLOW, Principal.parse("--allow", each)) for each in args.allow]
    who += [(Permission.DENY, Principal.parse("--deny", each)) for each in args.deny]
    operations = _operations(args.operation)
    resources = _resources(args)
    if not who or not operations or not resources:
        raise UsageError("nothing to create: name --allow or --deny, --operation, and a resource such as --topic")
    acls = [
        Acl(resource, principal, operation, permission, args.host)
        for (permission, principal), operation, resource in product(who, operations, resources)
    ]
    for acl in acls:
        check_acl(acl)  # all are refused, or none
    async with administering_security(args) as (security, _):
        await security.create_acls(acls)
    _print("created", acls, as_json=args.json)
    return OK


async def run_list(args: argparse.Namespace) -> int:
    """Print ACLs."""
    filters = _filters(args)
    async with administering_security(args) as (security, _):
        found = await security.acls()
    _print("ACLs", [acl for acl in found if any(each.accepts(acl) for each in filters)], as_json=args.json)
    return OK


async def run_delete(args: argparse.Namespace) -> int:
    """Delete those that are named, and print them."""
    filters = _filters(args)
    every = filters == [AclFilter()]
    if not confirmed(args, "Delete every ACL?" if every else "Delete these ACLs?"):
        return FAILED
    deleted: list[Acl] = []
    async with administering_security(args) as (security, _):
        for wanted in filters:
            deleted += (await security.delete_acls(wanted))[0]
    if not deleted and not args.json:
        print_line("no ACL matches")
        return OK
    _print("deleted", deleted, as_json=args.json)
    return OK


def _operations(given: Iterable[str]) -> list[Operation]:
    names = [name.strip().lower() for each in given for name in each.split(",") if name.strip()]
    for name in names:
        check_one_of("--operation", name, tuple(Operation))
    return [Operation(name) for name in dict.fromkeys(names)]


def _resources(args: argparse.Namespace) -> list[ResourcePattern]:
    found = [
        ResourcePattern(kind, name, pattern)
        for flag, (kind, pattern) in _RESOURCES.items()
        for name in getattr(args, flag)
    ]
    return [*found, *([ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)] if args.cluster else [])]


def _filters(args: argparse.Namespace) -> list[AclFilter]:
    operation = _operations([args.operation])[0] if args.operation else None
    principal = Principal.parse("--principal", args.principal) if args.principal else None
    resources = _resources(args)
    if not resources:
        return [AclFilter(principal=principal, operation=operation)]
    return [
        AclFilter(type=each.type, name=each.name, pattern=each.pattern, principal=principal, operation=operation)
        for each in resources
    ]


def _print(title: str, acls: Iterable[Acl], *, as_json: bool) -> None:
    print_rows(title, [_row(acl) for acl in acls], COLUMNS, as_json=as_json)


def _row(acl: Acl) -> Mapping[str, object]:
    return {
        "principal": str(acl.principal),
        "permission": acl.permission,
        "operation": acl.operation,
        "resource": acl.resource.type,
        "name": acl.resource.name,
        "pattern": acl.resource.pattern,
        "host": acl.host,
    }
