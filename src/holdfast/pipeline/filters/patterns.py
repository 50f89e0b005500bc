"""Regular expressions that cannot run away: read here, matched by an automaton in time linear in the text.

What there is: characters, `.`, classes `[a-z]` `[^…]`, `\\d \\w \\s` and their opposites (ASCII), `^ $`, groups, `|`, `* + ?` and
`{m,n}`, and `(?i)` in front. What there is not, because an automaton cannot do it or nobody should need it: back references,
look-around, word boundaries. The one rule: a pattern is refused when it is read, never when it meets a text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

PATTERN_MAX: Final = 1_000
STATES_MAX: Final = 1_000
REPEAT_MAX: Final = 200
BUILT_MAX: Final = 5_000
DEPTH_MAX: Final = 20

_CLASSES: Final = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\r"), (" ", " ")),
}
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_NO_ESCAPE: Final = "a letter or digit has a backslash only as \\d \\w \\s \\D \\W \\S \\n \\r \\t \\f \\v"


class BadPattern(Exception):  # noqa: N818 - turned into a FilterError with the filter's own place
    """Not a pattern: what is wrong, and at which character of it."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(at, why)
        self.at, self.why = at, why

    def __str__(self) -> str:
        return f"{self.why} (at character {self.at + 1} of the pattern)"


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of ranges, or one that is in none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False
    any_case: bool = False

    def has(self, character: str) -> bool:
        """Whether it is one of them."""
        if self.any_case:
            return any(map(self._in, {character, character.lower(), character.upper()})) is not self.negated
        return self._in(character) is not self.negated

    def _in(self, character: str) -> bool:
        return any(least <= character <= most for least, most in self.ranges)


@dataclass(frozen=True, slots=True)
class One:
    """A state that takes one character."""

    chars: Chars
    then: int


@dataclass(frozen=True, slots=True)
class Either:
    """A state that is two others."""

    one: int
    other: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A state that is another at the beginning (`^`) or the end (`$`) of the text only."""

    at_end: bool
    then: int


State: TypeAlias = One | Either | Edge
MATCH: Final = -1
"""In place of a state: the pattern has matched."""

Part: TypeAlias = Callable[[int], int]
"""A piece of pattern: given the state behind it, it makes its own and says where it begins."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as states; `start` is the first."""

    states: tuple[State, ...]
    start: int


def read_pattern(text: str) -> Pattern:
    """The states of a pattern, or `BadPattern`."""
    if len(text) > PATTERN_MAX:
        raise BadPattern(0, f"a pattern has at most {PATTERN_MAX} characters")
    reader = _Reader(text)
    part = reader.alternatives()
    if reader.at < len(text):
        raise BadPattern(reader.at, "a ) without its (")
    start = part(MATCH)
    return Pattern(tuple(reader.states), start)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.depth = text, 0
        self.any_case = text.startswith("(?i)")
        self.at = 4 if self.any_case else 0
        self.built = 0
        self.states: list[State] = []

    @property
    def now(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, wanted: str) -> bool:
        if self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    def add(self, state: State) -> int:
        if len(self.states) >= STATES_MAX:
            raise BadPattern(self.at, f"a pattern has at most {STATES_MAX} states; repetitions multiply them")
        self.states.append(state)
        return len(self.states) - 1

    def alternatives(self) -> Part:
        parts = [self.sequence()]
        while self.take("|"):
            parts.append(self.sequence())

        def build(then: int) -> int:
            first, *others = [part(then) for part in parts]
            for other in others:
                first = self.add(Either(first, other))
            return first

        return build

    def sequence(self) -> Part:
        parts: list[Part] = []
        while self.now and self.now not in "|)":
            parts.append(self.repeated())

        def build(then: int) -> int:
            for part in reversed(parts):
                then = part(then)
            return then

        return build

    def repeated(self) -> Part:
        begin, part = self.at, self.single()
        counted = self.count()
        if counted is None:
            return part
        self.take("?")  # lazy or not, the text matches or it does not
        if self.count() is not None:
            raise BadPattern(begin, "nothing is repeated twice: put the inner repetition in a group")
        return self.times(part, *counted)

    def count(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        if self.now != "{":
            return None
        inner, closed, _ = self.text[self.at + 1 :].partition("}")
        least, comma, most = inner.partition(",")
        if not closed or not _small(least) or not (not most or _small(most)):
            raise BadPattern(
                self.at, f"{{m}}, {{m,}} or {{m,n}} with numbers up to {REPEAT_MAX}; a brace itself is \\{{"
            )
        self.at += len(inner) + 2
        fewest, greatest = int(least), (int(most) if most else None) if comma else int(least)
        if greatest is not None and greatest < fewest:
            raise BadPattern(self.at, "{m,n} with n less than m")
        return fewest, greatest

    def times(self, part: Part, least: int, most: int | None) -> Part:
        def build(then: int) -> int:
            self.built += least + (most or 1)
            if self.built > BUILT_MAX:  # repetitions of nothing make no states, and still take time
                raise BadPattern(self.at, "repetitions inside repetitions come to too many")
            if most is None:
                loop = self.add(Either(then, then))
                self.states[loop] = Either(part(loop), then)
                then = loop
            else:
                end = then
                for _ in range(most - least):
                    then = self.add(Either(part(then), end))
            for _ in range(least):
                then = part(then)
            return then

        return build

    def single(self) -> Part:
        character = self.now
        self.at += 1
        match character:
            case "(":
                return self.group()
            case "[":
                chars = self.bracket()
            case ".":
                chars = Chars((("\n", "\n"),), negated=True)
            case "\\":
                chars = self.escape()
            case "^" | "$":
                return lambda then: self.add(Edge(character == "$", then))
            case "*" | "+" | "?" | "{":
                raise BadPattern(
                    self.at - 1, f"nothing in front of {character} to repeat; the character itself is \\{character}"
                )
            case _:
                chars = self.chars(((character, character),))
        return lambda then: self.add(One(chars, then))

    def chars(self, ranges: tuple[tuple[str, str], ...], *, negated: bool = False) -> Chars:
        return Chars(ranges, negated, self.any_case)

    def group(self) -> Part:
        begin = self.at - 1
        if self.now == "?" and not self.take("?:"):
            raise BadPattern(begin, "only ( and (?: open a group, and (?i) a pattern: no look-around, no names")
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise BadPattern(begin, f"groups nested more than {DEPTH_MAX} deep")
        part = self.alternatives()
        if not self.take(")"):
            raise BadPattern(begin, "a ( without its )")
        self.depth -= 1
        return part

    def escape(self) -> Chars:
        character = self.now
        self.at += 1
        if character.lower() in _CLASSES and character:
            return self.chars(_CLASSES[character.lower()], negated=character.isupper())
        plain = self.escaped(character)
        return self.chars(((plain, plain),))

    def escaped(self, character: str) -> str:
        if not character:
            raise BadPattern(self.at - 2, "a backslash with nothing behind it")
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum():
            raise BadPattern(self.at - 2, _NO_ESCAPE)
        return character

    def bracket(self) -> Chars:
        begin = self.at - 1
        negated, ranges = self.take("^"), list[tuple[str, str]]()
        while not (self.now == "]" and ranges):
            least = self.member(begin)
            if isinstance(least, tuple):
                ranges.extend(least)
            elif self.now == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                most = self.member(begin)
                if isinstance(most, tuple) or most < least:
                    raise BadPattern(begin, "a range from a greater to a lesser character, or to a class")
                ranges.append((least, most))
            else:
                ranges.append((least, least))
        self.at += 1
        return self.chars(tuple(ranges), negated=negated)

    def member(self, begin: int) -> str | tuple[tuple[str, str], ...]:
        character = self.now
        if not character:
            raise BadPattern(begin, "a [ without its ]")
        self.at += 1
        if character != "\\":
            return character
        character = self.now
        self.at += 1
        return _CLASSES[character] if character and character in _CLASSES else self.escaped(character)


def _small(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= REPEAT_MAX
