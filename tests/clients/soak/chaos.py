"""What the soak does to the server, at random moments of a seed: kill, terminate, pause. It counts and times them."""

import threading
from dataclasses import dataclass, field

from tests.clients.soak.plan import Plan
from tests.support.broker import Broker

from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom

CLOCK = RealClock()
KINDS = ("kill", "term", "pause")
ABSENT_EVERY = 4  # pauses: the last of each four outlasts every lease


@dataclass(slots=True, kw_only=True)
class Deeds:
    """What was done. `unclean` are exit codes after SIGTERM other than 0; `start_s_max` the slowest start."""

    kills: int = 0
    terms: int = 0
    pauses: int = 0
    unclean: list[int] = field(default_factory=list)
    start_s_max: float = 0.0


class Chaos:
    """Acts on the broker from a thread of its own while it is entered; leaves it running."""

    def __init__(self, broker: Broker, *, plan: Plan) -> None:
        self._broker, self._plan, self._rng = broker, plan, SeededRandom(plan.seed).random
        self.deeds = Deeds()
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Chaos":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while True:
                for kind in self._rng.sample(KINDS, len(KINDS)):  # each kind once in a round, in any order
                    if self._ending.wait(self._rng.uniform(*self._plan.gap_s)):
                        return
                    getattr(self, f"_{kind}")()
        except BaseException as failure:
            self._failure = failure

    def _kill(self) -> None:
        self._broker.kill()
        self.deeds.kills += 1
        self._start()

    def _term(self) -> None:
        code = self._broker.terminate()
        self.deeds.terms += 1
        if code != 0:
            self.deeds.unclean.append(code)
        self._start()

    def _pause(self) -> None:
        self.deeds.pauses += 1
        long = self.deeds.pauses % ABSENT_EVERY == 0
        self._broker.stop()
        self._ending.wait(self._rng.uniform(*(self._plan.absence_s if long else self._plan.pause_s)))
        self._broker.cont()

    def _start(self) -> None:
        self._ending.wait(self._rng.uniform(0, 1))
        began_ms = CLOCK.boot_ms()
        self._broker.start()
        self.deeds.start_s_max = max(self.deeds.start_s_max, (CLOCK.boot_ms() - began_ms) / 1_000)
