"""The decision function against one that is too simple to be wrong, and the rules that people rely on, one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_acl,
)
from holdfast.security.authorizer import Authorizer
from holdfast.security.principals import Principal
from holdfast.vocabulary.errors import InvalidError

ANN, BOB, EVERYBODY = Principal("ann"), Principal("bob"), Principal("*")
HERE, THERE = "10.0.0.1", "10.0.0.2"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
NAMES = ["", "a", "b", "aa", "ab", "aab", "*"]

operations = st.sampled_from([*OPERATIONS[TOPIC], Operation.ALL])
resources = st.builds(
    ResourcePattern, st.sampled_from([TOPIC, GROUP]), st.sampled_from(NAMES[1:]), st.sampled_from(PatternType)
)
acls = st.builds(
    Acl,
    resources,
    st.sampled_from([ANN, BOB, EVERYBODY]),
    operations,
    st.sampled_from(Permission),
    st.sampled_from([HERE, THERE, "*"]),
)
acl_sets = st.lists(acls, max_size=8)

IMPLIED = {
    Operation.DESCRIBE: {"read", "write", "delete", "alter", "describe", "all"},
    Operation.DESCRIBE_CONFIGS: {"describe-configs", "alter-configs", "all"},
}


def naive(
    listed: list[Acl], principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
) -> bool:
    """Looks at every ACL, with no index and nothing shared with the real one."""
    mine = []
    for acl in listed:
        prefixed = acl.resource.pattern == "prefixed"
        about = name.startswith(acl.resource.name) if prefixed else acl.resource.name in ("*", name)
        by = str(acl.principal) in ("User:*", f"User:{principal.name}")
        if acl.resource.type == kind and about and by and acl.host in ("*", host):
            mine.append(acl)
    if [acl for acl in mine if acl.permission == "deny" and acl.operation in ("all", operation)]:
        return False
    enough = IMPLIED.get(operation, {"all", str(operation)})
    return bool([acl for acl in mine if acl.permission == "allow" and acl.operation in enough])


@given(
    acl_sets,
    st.sampled_from([ANN, BOB]),
    st.sampled_from([HERE, THERE]),
    st.sampled_from(OPERATIONS[TOPIC]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
)
def test_it_decides_as_the_naive_one_does(
    listed: list[Acl], principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
) -> None:
    decided = Authorizer(listed).authorize(principal, host, operation, kind, name)
    assert decided == naive(listed, principal, host, operation, kind, name)


@given(acl_sets, st.sampled_from(OPERATIONS[TOPIC]))
def test_what_is_allowed_somewhere_is_not_refused_as_allowed_nowhere(listed: list[Acl], operation: Operation) -> None:
    authorizer = Authorizer(listed)
    allowed = [name for name in NAMES if authorizer.authorize(ANN, HERE, operation, TOPIC, name)]
    if allowed:
        assert authorizer.authorize_any(ANN, HERE, operation, TOPIC)
    if not [acl for acl in listed if acl.permission is Permission.ALLOW]:
        assert not authorizer.authorize_any(ANN, HERE, operation, TOPIC)


@given(acl_sets, st.sampled_from(NAMES))
def test_authorized_operations_are_those_that_are_allowed(listed: list[Acl], name: str) -> None:
    authorizer = Authorizer(listed)
    found = authorizer.authorized_operations(ANN, HERE, GROUP, name)
    assert found == tuple(each for each in OPERATIONS[GROUP] if authorizer.authorize(ANN, HERE, each, GROUP, name))


@given(acl_sets, st.sampled_from(OPERATIONS[TOPIC]), st.sampled_from(NAMES))
def test_a_super_user_needs_no_acl(listed: list[Acl], operation: Operation, name: str) -> None:
    authorizer = Authorizer(listed, [ANN])
    assert authorizer.authorize(ANN, HERE, operation, TOPIC, name)
    assert authorizer.authorize_any(ANN, HERE, operation, TOPIC)


def topic(name: str, pattern: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(TOPIC, name, pattern)


def test_without_acls_nothing_is_allowed() -> None:
    assert not Authorizer().authorize(ANN, HERE, Operation.DESCRIBE, TOPIC, "orders")


def test_a_denial_wins_over_a_more_specific_permission() -> None:
    authorizer = Authorizer(
        [
            Acl(topic("orders"), ANN, Operation.READ),
            Acl(topic("ord", PatternType.PREFIXED), EVERYBODY, Operation.READ, Permission.DENY),
        ]
    )
    assert not authorizer.authorize(ANN, HERE, Operation.READ, TOPIC, "orders")


def test_a_denial_to_read_does_not_deny_to_describe() -> None:
    authorizer = Authorizer(
        [
            Acl(topic("orders"), ANN, Operation.WRITE),
            Acl(topic("orders"), ANN, Operation.READ, Permission.DENY),
        ]
    )
    assert authorizer.authorize(ANN, HERE, Operation.DESCRIBE, TOPIC, "orders")


def test_a_denied_pattern_that_covers_all_that_is_allowed_leaves_nothing() -> None:
    allowed = Acl(topic("orders-eu", PatternType.PREFIXED), ANN, Operation.WRITE)
    for denied, any_left in (
        (topic("orders", PatternType.PREFIXED), False),
        (topic("*"), False),
        (topic("orders-eu"), True),
    ):
        authorizer = Authorizer([allowed, Acl(denied, EVERYBODY, Operation.ALL, Permission.DENY)])
        assert authorizer.authorize_any(ANN, HERE, Operation.WRITE, TOPIC) is any_left


def test_a_filter_by_match_finds_every_pattern_that_covers_a_name() -> None:
    listed = [
        Acl(topic("orders"), ANN, Operation.READ),
        Acl(topic("*"), ANN, Operation.READ),
        Acl(topic("ord", PatternType.PREFIXED), ANN, Operation.READ),
        Acl(topic("other"), ANN, Operation.READ),
    ]
    matching = [acl for acl in listed if AclFilter(type=TOPIC, name="orders", match=True).accepts(acl)]
    assert matching == listed[:3]
    assert [acl for acl in listed if AclFilter(type=TOPIC, name="orders").accepts(acl)] == listed[:1]


def test_an_acl_that_could_never_apply_is_refused() -> None:
    cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    for acl in (
        Acl(ResourcePattern(ResourceType.CLUSTER, "mine"), ANN, Operation.ALTER),
        Acl(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.PREFIXED), ANN, Operation.ALTER),
        Acl(cluster, ANN, Operation.READ),
        Acl(topic(""), ANN, Operation.READ),
        Acl(topic("orders"), ANN, Operation.IDEMPOTENT_WRITE),
        Acl(topic("orders"), ANN, Operation.READ, host=""),
        Acl(topic("orders"), ANN, Operation.READ, host="node-1"),
        Acl(topic("orders"), ANN, Operation.READ, host="10.0.0.0/8"),
    ):
        with pytest.raises(InvalidError):
            check_acl(acl)
    check_acl(Acl(cluster, ANN, Operation.ALL))
