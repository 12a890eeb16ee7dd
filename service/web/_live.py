"""What a dashboard shows of the present, made once for all browsers, and only while one looks.

Everything is in a few sections, each a piece of JSON that is made anew when what it tells of has changed.  A turn goes
by twenty times a second.  A browser says which turn it has, and gets the newest of the sections that have changed
since; it asks again when it has taken them.  So a slow one asks less often: it gets fewer of them, never old ones, and
nothing waits for it here.

Each answer tells the time, each section the time that it is of, both on CLOCK_MONOTONIC: what has stopped to come is
seen to grow old.  What the data do not support has no number: it is null before it leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable

from service.protocol.messages import BELIEVED
from service.web._cache import Arm, Cache
from service.web._numbers import numbers
from service.web._overview import overview

TURN_S = 0.05
PATIENCE_S = 1.0  # a question is answered after so long also if nothing has changed: the answer says that we are there
LOOKED_S = 3.0  # so long after its last question a browser may still be there
_OVERVIEW_NS = 500_000_000

_Make = Callable[[Arm], str]


class Live:
    """The sections of all arms.

    Parameters
    ----------
    latest : Latest
    epoch : int
        Of this process: turns are counted anew when it is started again.
    clock : callable
        CLOCK_MONOTONIC [ns].
    """

    def __init__(self, latest: Cache, epoch: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._latest, self._epoch, self._clock = latest, epoch, clock
        self.turn = 0
        self._texts: dict[tuple[str, str], str] = {}
        self._changed: dict[tuple[str, str], int] = {}  # turn in which a section has become what it is
        self._made_of: dict[tuple[str, str], int] = {}  # count of the messages that it was made of
        self._looked_ns: dict[str, int] = {}  # by arm, and "" for whatever is of all arms
        self._next_overview_ns = 0
        self._next = asyncio.Event()

    def watched(self, now_ns: int) -> set[str]:
        """Return the arms that somebody looks at."""
        return {arm for arm, at_ns in self._looked_ns.items() if arm and now_ns - at_ns < LOOKED_S * 1e9}

    def go_on(self, now_ns: int) -> None:
        """Make anew what has changed, and let those go on who wait for that."""
        if now_ns - self._looked_ns.get("", -(1 << 62)) > LOOKED_S * 1e9:
            return
        self.turn += 1
        of_status = sum(arm.seen["status"] for arm in self._latest.arms.values())
        if now_ns >= self._next_overview_ns or self._made_of.get(("", "fleet")) != of_status:
            self._next_overview_ns = now_ns + _OVERVIEW_NS
            self._made_of["", "fleet"] = of_status
            self._put("", "fleet", json.dumps(overview(self._latest, now_ns), separators=(",", ":")))
        for name in self.watched(now_ns):
            arm = self._latest.arms[name]
            for kind, sections in _SECTIONS.items():
                count = arm.seen[kind]
                if self._made_of.get((name, kind)) != count:
                    self._made_of[name, kind] = count
                    for section, make in sections.items():
                        self._put(name, section, make(arm))
        self._next.set()
        self._next = asyncio.Event()

    def _put(self, arm: str, section: str, text: str) -> None:
        if text and self._texts.get((arm, section)) != text:
            self._texts[arm, section] = text
            self._changed[arm, section] = self.turn

    async def answer(self, arm: str, epoch: int, since: int) -> str:
        """Return what has changed since the turn `since`, of all arms and of `arm` ("" is none).

        Waits until something has; after `PATIENCE_S` it answers that nothing has.
        """
        since = since if epoch == self._epoch and since <= self.turn else -1
        began_ns = self._clock()
        deadline_ns = began_ns + round(PATIENCE_S * 1e9)
        fresh = all(began_ns - self._looked_ns.get(key, -(1 << 62)) < LOOKED_S * 1e9 for key in {"", arm})
        while True:
            now_ns = self._clock()
            self._looked_ns[""] = self._looked_ns[arm] = now_ns
            found = [key for key, turn in self._changed.items() if fresh and turn > since and key[0] in ("", arm)]
            told = self.turn if fresh else max(since, 0)  # what has not been told of a turn is still to be had
            if found or now_ns >= deadline_ns:
                parts = [f'"epoch":{self._epoch}', f'"turn":{told}', f'"now":{now_ns * 1e-9:.3f}']
                parts += [f'"arm":{json.dumps(arm)}']
                parts += [f'"{section}":{self._texts[name, section]}' for name, section in found]
                return "{" + ",".join(parts) + "}"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._next.wait(), (deadline_ns - now_ns) * 1e-9)
                fresh = True  # what nobody had looked at before has been made anew


def _estimate(arm: Arm) -> str:
    """Values with their standard deviations; null for a parameter that has none."""
    found = arm.estimate
    if found is None:
        return ""
    there = [status in BELIEVED for status in found.status]
    theta = [value if ok else None for value, ok in zip(found.theta.tolist(), there, strict=True)]
    std = [value if ok else None for value, ok in zip(found.std.tolist(), there, strict=True)]
    return (
        f'{{"t":{found.envelope.t_ns * 1e-9:.3f},"at":{found.envelope.t_host_ns * 1e-9:.3f},'
        f'"theta":{numbers(theta)},"std":{numbers(std)},"lam":[{",".join(f"{x:.7g}" for x in found.lam.tolist())}],'
        f'"innovation":{numbers(found.innovation.tolist())},"sigma":{numbers(found.sigma.tolist())},'
        f'"frames":{found.frames},"used":{found.used},"masked":{found.masked},"lost":{found.lost},'
        f'"resets":{found.resets},"hash":{json.dumps(found.hash)}}}'
    )


def _standing(arm: Arm) -> str:
    """Tell what is to be thought of the values, which changes seldom."""
    found = arm.estimate
    if found is None:
        return ""
    excited = [1 if flag else 0 for flag in found.excited.tolist()]
    return json.dumps({"status": found.status, "excited": excited}, separators=(",", ":"))


def _torque(arm: Arm) -> str:
    found = arm.torque
    if found is None:
        return ""
    measured, predicted = numbers(found.measured.tolist()), numbers(found.predicted.tolist())
    at = found.envelope.t_host_ns * 1e-9
    return f'{{"t":{found.envelope.t_ns * 1e-9:.3f},"at":{at:.3f},"measured":{measured},"predicted":{predicted}}}'


def _bus(arm: Arm) -> str:
    """Tell what acquisition and estimator say of frames, the cycle and the bus."""
    body = {
        "at": {src: at_ns * 1e-9 for (kind, src), at_ns in arm.sent_ns.items() if kind == "status"},
        "acquisition": arm.status.get("acquisition", {}),
        "estimator": {
            key: value for key, value in arm.status.get("estimator", {}).items() if key not in ("drift", "change")
        },
        "rate_hz": arm.stats.get("acquisition", {}).get("rate_hz"),
        "latency": arm.stats.get("estimator", {}).get("latency"),
    }
    return json.dumps(body, separators=(",", ":"))


#: By the kind of message that they are made of.
_SECTIONS: dict[str, dict[str, _Make]] = {
    "estimate": {"estimate": _estimate, "standing": _standing},
    "torque": {"torque": _torque},
    "status": {"bus": _bus},
}
