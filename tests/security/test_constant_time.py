"""Secrets are compared by `hmac.compare_digest` and nothing else: found in the source, so that no timing has to be measured.

A comparison that stops at the first wrong byte tells whoever can measure it how many were right. Names of what is secret are listed
here; `==`, `!=`, `in` and `match` on one of them fail the test, wherever in these modules they are.
"""

import ast
from pathlib import Path

import pytest

import holdfast.gateways.kafka.login
import holdfast.security

SECRET = frozenset(
    {
        *("stored_key", "server_key", "client_key", "salted", "salted_password", "password", "secret", "decoy_secret"),
        *("proof", "signature", "nonce", "token", "key_hash", "digest_hex"),
    }
)
# What may be compared although it has such a name, and why.
ALLOWED: frozenset[str] = frozenset()
SOURCES = sorted(
    [*Path(holdfast.security.__path__[0]).glob("*.py"), Path(str(holdfast.gateways.kafka.login.__file__))],
)


def compared_secrets(source: str) -> list[str]:
    """Every comparison of a secret, as it is written."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and not all(_of_none(each) for each in node.comparators):
            if any(_names(each) & SECRET for each in (node.left, *node.comparators)):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Match) and _names(node.subject) & SECRET:
            found.append(ast.unparse(node.subject))
    return [each for each in found if each not in ALLOWED]


def _of_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _names(node: ast.expr) -> set[str]:
    """The name of a value itself; what is only computed from it (a length) is none of it."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Subscript):
        key = {str(node.slice.value)} if isinstance(node.slice, ast.Constant) else set()
        return _names(node.value) | key
    return set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_secret_is_compared_byte_by_byte(path: Path) -> None:
    assert compared_secrets(path.read_text()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "if stored_key == credential.stored_key: ...",
        "ok = found['proof'] != self.proof",
        "return token in known",
        "match password:\n    case 'x': ...",
    ],
)
def test_a_comparison_that_stops_early_is_noticed(planted: str) -> None:
    """Planted: each of these is how one would slip in."""
    assert compared_secrets(planted)
    assert not compared_secrets("ok = hmac.compare_digest(stored_key, credential.stored_key) and token is None")
