"""Names of certificates, and the rules that make principals of them."""

import pytest

from holdfast.security.principals import Principal, PrincipalMapping, distinguished_name, parse_principals
from holdfast.vocabulary.errors import InvalidError

SUBJECT = (
    (("countryName", "DE"),),
    (("organizationName", "Acme, Inc."),),
    (("organizationalUnitName", "shop"),),
    (("commonName", "ann"),),
)


def test_a_certificates_name_is_written_as_kafkas_brokers_write_it() -> None:
    assert distinguished_name(SUBJECT) == r"CN=ann,OU=shop,O=Acme\, Inc.,C=DE"
    assert distinguished_name(((("commonName", "#1 "),),)) == "CN=\\#1\\ "
    assert distinguished_name(((("emailAddress", "a@b"),), (("commonName", "x"), ("userId", "y")))) == (
        "CN=x+UID=y,1.2.840.113549.1.9.1=#1603614062"
    )


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("", "CN=ann,O=acme", "CN=ann,O=acme"),
        ("DEFAULT", "CN=ann,O=acme", "CN=ann,O=acme"),
        (r"RULE:^CN=(.*?),.*$/$1/", "CN=ann,O=acme", "ann"),
        (r"RULE:^CN=(.*?),O=(.*?)$/$1@$2/U", "CN=ann,O=acme", "ANN@ACME"),
        (r"RULE:^CN=(.*?),O=acme$/$1/L, RULE:^CN=(.*?)$/other-$1/", "CN=ANN,O=acme", "ann"),
        (r"RULE:^CN=(.*?),O=acme$/$1/L, RULE:^CN=(.*?)$/other-$1/", "CN=bob", "other-bob"),
        (r"RULE:^CN=(.*?),O=acme$/$1/,DEFAULT", "CN=bob", "CN=bob"),
        (r"RULE:^CN=(.*?)\/x$/$1/", "CN=bob/x", "bob"),
        (r"RULE:^CN=(.*?),O=acme$/$1/", "CN=bob", None),
        (r"RULE:^CN=(.*?)$//", "CN=bob", None),
    ],
)
def test_the_first_rule_that_takes_a_name_maps_it(rules: str, name: str, mapped: str | None) -> None:
    found = PrincipalMapping("rules", rules).mapped(name)
    assert found == (None if mapped is None else Principal(mapped))


@pytest.mark.parametrize("rules", ["RULE:", "RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "DEFAULT DEFAULT", "RULE:a/b/X"])
def test_rules_that_are_not_understood_are_refused(rules: str) -> None:
    with pytest.raises(InvalidError, match="rules"):
        PrincipalMapping("rules", rules)


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_principals("super users", "User:ann; User:CN=b,O=c;") == {Principal("ann"), Principal("CN=b,O=c")}
    for wrong in ("ann", "Group:x", "User:"):
        with pytest.raises(InvalidError, match="User:NAME"):
            parse_principals("super users", wrong)
