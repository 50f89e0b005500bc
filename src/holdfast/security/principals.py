"""Principals: who a request comes from, and how the name of a certificate becomes one.

The one rule: a name is taken as it was authenticated. Nothing is trimmed or folded, except by a mapping rule that says so.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.errors import InvalidError

USER: Final = "User"
NAME_BYTES_MAX: Final = 255


@dataclass(frozen=True, slots=True, order=True)
class Principal:
    """Somebody: `User:ann`."""

    name: str
    kind: str = USER

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, what: str, text: str) -> "Principal":
        """`User:ann`, or `User:*` where that means everybody."""
        kind, colon, name = text.partition(":")
        if not colon or kind != USER or not name:
            raise InvalidError(what, text, "User:NAME")
        check_user_name(what, name)
        return cls(name, kind)


ANONYMOUS: Final = Principal("ANONYMOUS")
EVERYBODY: Final = Principal("*")


def check_user_name(what: str, name: str) -> None:
    """Refuse a name that cannot be stored or shown."""
    if not name or not name.isprintable() or len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        raise InvalidError(what, name[:80], f"1 to {NAME_BYTES_MAX} bytes of printable text")


def parse_principals(what: str, text: str) -> frozenset[Principal]:
    """`User:ann;User:bob`. Separated by semicolons, as in Kafka: a certificate's name contains commas."""
    return frozenset(Principal.parse(what, each.strip()) for each in text.split(";") if each.strip())


# ── names of certificates ──

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_EMAIL: Final = "1.2.840.113549.1.9.1"
_IA5_STRING: Final = 0x16
_ESCAPED: Final = re.compile(r'([,+"\\<>;])')
_SHORT_LENGTH: Final = 0x80

RelativeNames = Sequence[Sequence[tuple[str, str]]]


def distinguished_name(subject: RelativeNames) -> str:
    """A certificate's subject, as `ssl` gives it, in the form of RFC 2253 that Kafka's brokers use: `CN=ann,OU=shop,O=acme`."""
    return ",".join("+".join(_attribute(*each) for each in names) for names in reversed(subject))


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":  # RFC 2253 has no name for it: Java writes the encoded value
        data = value.encode()
        size = len(data).to_bytes(1, "big") if len(data) < _SHORT_LENGTH else b"\x81" + len(data).to_bytes(1, "big")
        return f"{_EMAIL}=#{(bytes([_IA5_STRING]) + size + data).hex()}"
    escaped = _ESCAPED.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={escaped}"


# ── ssl.principal.mapping.rules ──

_RULE: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BETWEEN: Final = re.compile(r"\s*(?:,\s*|$)")
_REFERENCE: Final = re.compile(r"\$(\d+)")
_FORM: Final = "DEFAULT, or RULE:pattern/replacement/[LU], separated by commas"
_CASE: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


@dataclass(frozen=True, slots=True)
class _MappingRule:
    pattern: "re.Pattern[str] | None"  # None: DEFAULT, the whole name
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        groups = (found.group(0), *(each or "" for each in found.groups()))
        mapped = _REFERENCE.sub(lambda each: groups[int(each[1])], self.replacement)
        return _CASE[self.case](mapped)


class PrincipalMapping:
    """Kafka's `ssl.principal.mapping.rules`: the first rule whose pattern is the whole name counts. Patterns are Python's.

    `mapped` is None for a name that no rule takes: its owner is refused.
    """

    def __init__(self, what: str, text: str) -> None:
        self._rules = tuple(_parsed(what, text))

    def mapped(self, name: str) -> Principal | None:
        """The principal of a certificate."""
        for rule in self._rules:
            found = rule.apply(name)
            if found:
                return Principal(found)
        return None


def _parsed(what: str, text: str) -> Iterable[_MappingRule]:
    rules = list(_split(what, text.strip() or "DEFAULT"))
    for default, pattern, replacement, case in rules:
        if default:
            yield _MappingRule(None)
            continue
        try:
            compiled = re.compile(pattern.replace("\\/", "/"))
        except re.error as error:
            raise InvalidError(what, pattern, f"a pattern ({error})") from None
        for reference in _REFERENCE.findall(replacement):
            if int(reference) > compiled.groups:
                raise InvalidError(what, replacement, f"references to the {compiled.groups} groups of its pattern")
        yield _MappingRule(compiled, replacement.replace("\\/", "/"), case)


def _split(what: str, text: str) -> Iterator[tuple[str, str, str, str]]:
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        between = _BETWEEN.match(text, found.end()) if found is not None else None
        if found is None or between is None:
            raise InvalidError(what, text[at : at + 80], _FORM)
        yield found[1] or "", found[2] or "", found[3] or "", found[4] or ""
        at = between.end()
