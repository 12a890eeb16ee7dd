"""Positions of drives that come back, compared with where their joints stood when they went away."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import Joint, RobotModel
from rt_core.types import FloatArray
from service.protocol.control import ControlError
from service.worker.worker import Handler

#: A joint that moves by less [rad or m] in this time stands still. One that has just begun to move, at 5 rad/s^2, has
#: 0.14 rad/s then, and goes on by 7 mrad until its brake has closed (50 ms).
_LOOK_NS, _STILL = 100_000_000, 0.002
#: Farthest [rad; of a slide m] that it is found from there: a horizontal arm of 0.65 m falls by 19 mrad until its brake
#: has closed, a slide by 12 mm. An encoder that has lost turns is off by 39 mrad: one turn of a motor, geared 160:1.
_TURNED, _SLID = 0.03, 0.015
#: A drive may first report what it reported last, until its encoder has started.
WATCH_NS = 1_000_000_000
#: It is kept for the next run where a joint has stood for so long: not where it turned round.
_REST_NS = 1_000_000_000
#: What is kept of a joint that was not known at some start, because the file was unusable.
UNKNOWN = 2.0
#: Verbs that are refused while a joint is not confirmed.
MOVING = ("enable", "arm", "run_trajectory", "zero_force")


class ReturnedDrives:
    """Marks the joints of frames whose drives came back elsewhere, until they are confirmed.

    A drive that was without power may have lost its position, and what it delivers then looks like any other value.
    `report` takes events, as `Worker.event`; `kept` is of `load_positions`: all were away since then.
    """

    def __init__(self, model: RobotModel, report: Callable[..., None], kept: FloatArray | str | None = None) -> None:
        self._unusable, kept = (kept, None) if isinstance(kept, str) else ("", kept)
        self._joints, self._report, n = model.joints, report, model.n
        self._most = np.array([_TURNED if joint.kind == "revolute" else _SLID for joint in model.joints])
        self._stood = np.full(n, np.nan)  # where a joint stands, or stood when its drive went away; NaN: it moves
        self._last = self._looked = np.full(n, np.nan)  # when it was valid last, and as of the last look
        self._look_ns, self._whole = 0, kept is None  # whole: no joint is away or unconfirmed
        self._away, self._unconfirmed = np.full(n, kept is not None), np.zeros(n, np.bool_)
        self._unknown = np.full(n, bool(self._unusable))  # where it stood before some start; and not confirmed since
        if kept is not None:
            self._stood, self._unconfirmed = kept[:, 0].copy(), kept[:, 1] % UNKNOWN > 0.0
            self._unknown = kept[:, 1] >= UNKNOWN
        self._shown, self._shown_ns = self._stood, np.zeros(n, np.int64)  # as of `stood`, and since when
        self._until_ns = np.zeros(n, np.int64)  # it is compared with where it stood
        self._old = np.isfinite(self._stood)  # it is compared with the run before, or will be
        self._comparing = bool(self._old.any())  # now, or soon
        self._since_ns, self.asked = 0, False  # when the first frame came; one of `MOVING`, and it was not refused

    @property
    def names(self) -> list[str]:
        """Names of the joints that are not confirmed."""
        return [self._joints[j].name for j in np.flatnonzero(self._unconfirmed)]

    def report(self) -> dict[str, list[str]]:
        """Return names of joints that are not confirmed, and of those whose place was unknown at some start."""
        return {"unconfirmed": self.names, "unknown": [self._joints[j].name for j in np.flatnonzero(self._unknown)]}

    def settled(self, now_ns: int, within_ns: int) -> bool:
        """Return whether it is known of all joints that they came back where they stood, or of one that it did not.

        Raises `ControlError` if that is not known `within_ns` from the first frame on, or `kept` cannot be used.
        """
        if self._unknown.any():
            reason = self._unusable or "where joints stood was unknown at an earlier start"
            todo = "compare q with the arm, then `thetad control confirm_positions`"
            raise ControlError("unavailable", f"{reason}: {todo}")
        known = self._whole or bool(self._unconfirmed.any())
        if not known and self._since_ns and now_ns >= self._since_ns + within_ns:
            raise ControlError("unavailable", f"where all joints stand was not known within {within_ns * 1e-9:g} s")
        return known

    def stood(self, now_ns: int) -> list[tuple[float | None, float]]:
        """Return where each joint has stood for a while, None if it moves, and what is kept of doubts.

        That is 1 if it came back elsewhere, plus `UNKNOWN` if it was not known at some start, until it is confirmed.
        """
        same = np.abs(self._stood - self._shown) <= _STILL
        self._shown = np.where(same, self._shown, self._stood)
        self._shown_ns = np.where(same, self._shown_ns, now_ns)
        rests = same & (now_ns - self._shown_ns >= _REST_NS)
        places = [float(q) if rest else None for q, rest in zip(self._shown, rests, strict=True)]
        return list(zip(places, (self._unconfirmed + UNKNOWN * self._unknown).tolist(), strict=True))

    def marked(self, frame: JointFrame) -> JointFrame:
        """Return a copy of `frame` without the joints that are not confirmed; itself if all are."""
        if (q := frame.q) is None:
            return frame
        if not (self._whole and frame.valid is None):
            self._since_ns = self._since_ns or frame.t_host_ns
            valid = np.ones(len(q), np.bool_) if frame.valid is None else frame.valid
            still = np.where(np.abs(self._last - self._stood) <= _STILL, self._last, np.nan)
            known = valid | self._away | self._unconfirmed | (frame.t_host_ns < self._until_ns)
            self._stood = np.where(known, self._stood, still)
            self._until_ns = np.where(valid & self._away, frame.t_host_ns + WATCH_NS, self._until_ns)
            compared = valid & (frame.t_host_ns < self._until_ns)
            apart, near = np.abs(q - self._stood) > self._most, np.abs(q - self._stood) <= self._most  # NaN: neither
            found = compared & apart & ~self._unconfirmed
            self._unconfirmed = (self._unconfirmed & ~(compared & near)) | found
            for k in np.flatnonzero(found):
                self._tell(self._joints[k], float(self._stood[k]), float(q[k]), old=bool(self._old[k]))
            self._old = self._old & (compared | ~valid)
            self._comparing = bool((self._old & (compared | (frame.t_host_ns < self._since_ns + WATCH_NS))).any())
            self._away, q = ~valid, np.where(valid, q, self._last)
            self._whole = not (self._away | self._unconfirmed | compared).any()
            if self._unconfirmed.any():
                frame = replace(frame, valid=valid & ~self._unconfirmed)
        self._last = q
        if frame.t_host_ns - self._look_ns >= _LOOK_NS:
            stands = np.where(np.abs(q - self._looked) <= _STILL, q, np.nan)
            kept = self._away | self._unconfirmed | (frame.t_host_ns < self._until_ns)
            self._stood = np.where(kept, self._stood, stands)
            self._looked, self._look_ns = q, frame.t_host_ns
        return frame

    def _tell(self, joint: Joint, stood: float, found: float, *, old: bool) -> None:
        unit = "rad" if joint.kind == "revolute" else "m"
        text = f"the drive of {joint.name} went away at {stood:.6g} {unit}, where the joint stood still, and came back"
        if old:
            text = f"{joint.name} stood at {stood:.6g} {unit} when thetad ran last, and is now"
        text += (
            f" at {found:.6g} {unit}: it was moved meanwhile, or its encoder has lost its position. It is not valid "
            "until it comes back there another time, or `thetad control confirm_positions` says that this is right"
        )
        self._report("position_unconfirmed", text, joint=joint.name, stood=stood, found=found)

    def confirm(self, args: dict[str, Any]) -> dict[str, Any]:
        """Handle the request to take the present positions for right, of all joints or of those that are named."""
        names = [joint.name for joint in self._joints]
        wanted = args.get("joints", names)
        if not isinstance(wanted, list) or not all(name in names for name in wanted):
            raise ControlError("bad_argument", f"confirm_positions: joints is a list of {', '.join(names)}")
        seen = ~self._away & np.isfinite(self._last)  # what nobody has seen cannot be confirmed
        taken = (self._unconfirmed | self._unknown) & seen & np.array([name in wanted for name in names])
        self._stood[taken], self._until_ns[taken], self._unconfirmed[taken] = self._last[taken], 0, False
        self._unknown = self._unknown & ~taken
        return {"arm": args["arm"], "confirmed": [self._joints[j].name for j in np.flatnonzero(taken)]}

    def guarded(self, verb: str, handler: Handler) -> Handler:
        """Return a handler that refuses while a joint is not confirmed, or compared with the run before."""

        def handle(args: dict[str, Any]) -> Mapping[str, Any] | None:
            if names := ", ".join(self.names):
                todo = "compare q with the arm, put the encoder right, or `thetad control confirm_positions`"
                raise ControlError("unavailable", f"{verb}: {names} came back elsewhere than it stood: {todo}")
            if self._comparing:
                raise ControlError("unavailable", f"{verb}: not known yet where joints stand, try again in a second")
            answer = handler(args)
            self.asked = True
            return answer

        return handle
