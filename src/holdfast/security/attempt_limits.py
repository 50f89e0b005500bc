"""How often logins may fail, by user and by address; then they are refused for a while.

The rules: an attempt under way counts as a failure until it has ended, so that many at once are no more than one after another.
Memory is bounded, and what is forgotten is what failed longest ago. Pure: time is an argument.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass

from holdfast.vocabulary.settings import check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSettings:
    """After `failures_max` failures within `window_ms`, logins are refused for `lock_ms`. `kept_max`: names remembered."""

    failures_max: int = 10
    window_ms: int = 60_000
    lock_ms: int = 60_000
    kept_max: int = 10_000

    def __post_init__(self) -> None:
        for name in ("failures_max", "window_ms", "lock_ms", "kept_max"):
            check_at_least(name, getattr(self, name), 1)


@dataclass(slots=True)
class _Failures:
    count: int
    began_at_ms: int
    locked_until_ms: int = 0


class AttemptLimits:
    """Failures by name: of one kind of name, such as users or addresses."""

    def __init__(self, settings: AttemptSettings) -> None:
        self._settings = settings
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._under_way: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._failures)

    def locked_ms(self, name: str, now_ms: int) -> int:
        """For how much longer logins of the name are refused; 0: they are not."""
        found = self._failures.get(name)
        return max(0, found.locked_until_ms - now_ms) if found is not None else 0

    def may_begin(self, name: str, now_ms: int) -> bool:
        """Whether one more attempt stays within the limit even if all that are under way fail."""
        found = self._failures.get(name)
        recent = found is not None and now_ms - found.began_at_ms < self._settings.window_ms
        failed = found.count if found is not None and recent else 0
        return not self.locked_ms(name, now_ms) and failed + self._under_way[name] < self._settings.failures_max

    def begin(self, name: str) -> None:
        """An attempt is under way, until `end`."""
        self._under_way[name] += 1

    def end(self, name: str) -> None:
        """It is no longer; `failed` or `succeeded` says what became of it."""
        self._under_way[name] -= 1
        if not self._under_way[name]:
            del self._under_way[name]

    def failed(self, name: str, now_ms: int) -> None:
        """A login has failed."""
        settings = self._settings
        found = self._failures.pop(name, None)
        if found is None or now_ms - found.began_at_ms >= settings.window_ms:
            found = _Failures(0, now_ms, found.locked_until_ms if found is not None else 0)
        found.count += 1
        if found.count >= settings.failures_max:
            found = _Failures(0, now_ms, now_ms + settings.lock_ms)
        self._failures[name] = found
        while len(self._failures) > settings.kept_max:
            self._failures.popitem(last=False)

    def succeeded(self, name: str) -> None:
        """A login has succeeded: its failures are forgotten."""
        self._failures.pop(name, None)
