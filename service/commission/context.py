"""Shared by the steps of a commissioning: context, questions before motions, step description."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.commissioning.at_rest import set_position_text
from rt_core.types import FloatArray
from service.client import Control
from service.commission._site import Follow, Move, Site
from service.commission.errors import DeclinedError, StepFailedError
from service.commission.folder import Folder
from service.commission.settings import CommissionSettings, Payload
from service.io.trajectory_file import MAX_NUMBERS, Trajectory

#: Highest rate of a table's rows, which are joined by cubics.
_ROW_RATE_HZ = 50.0

#: Distance between measured and set position of drives that hold [rad, m]; share of the range that counts as near.
_HELD, _HELD_M, _NEAR = 0.05, 0.005, 0.05
#: How far an arm may move between question and motion [rad, m], for the play of its brakes.
_STILL, _STILL_M = np.radians(0.5), 0.001

#: Asks a yes/no question.
Ask = Callable[[str], bool]


class ArmAccess(Protocol):
    """Access to the arm: a running daemon, or a rehearsal with a daemon of its own."""

    rehearsal: bool

    def site(self) -> Site:
        """Return the arm, connecting to or starting it the first time."""

    def mount(self, payload: Payload | None) -> None:
        """Mount or remove a payload; raises `StepFailedError` if that cannot be done unattended."""


class RunningArm:
    """The arm of a running daemon; `arm` is optional where there is only one.

    `ask` asks to mount a payload; None if nobody is there.
    """

    rehearsal = False

    def __init__(self, control: Control, arm: str | None, ask: Ask | None) -> None:
        self._site, self._ask = Site(control, arm), ask

    def site(self) -> Site:
        """Return the arm."""
        return self._site

    def mount(self, payload: Payload | None) -> None:
        """Ask for the payload to be mounted or removed."""
        what = "Take the payload off" if payload is None else f"Mount the payload of {payload.mass:g} kg"
        if self._ask is None:
            raise StepFailedError(f"{what.lower()}: this needs a person; leave out --yes for it")
        if not self._ask(f"{what}; is it done?"):
            raise DeclinedError(what)


@dataclass
class Context:
    """Context of a step.

    `ask` is None where all motions are allowed without a question; `report` takes the finished share of the step, and
    the current action.
    """

    robot: RobotFile
    settings: CommissionSettings
    folder: Folder
    place: ArmAccess
    ask: Ask | None = None
    report: Callable[[float, str], None] = field(default=lambda _share, _what: None)

    @property
    def names(self) -> list[str]:
        """Names of the joints."""
        return [joint.name for joint in self.robot.model.joints]

    @property
    def units(self) -> tuple[str, ...]:
        """Unit of each joint's position."""
        return tuple("rad" if joint.kind == "revolute" else "m" for joint in self.robot.model.joints)

    def found(self, step: str) -> dict[str, Any]:
        """Return the result of an earlier step; raises `StepFailedError` if it has not been done."""
        result = self.folder.result(step)
        if result is None:
            raise StepFailedError(f"step {step} has not been done: repeat from there by --from {step}")
        return result

    @property
    def rate_hz(self) -> float:
        """The arm's cycle rate; raises `StepFailedError` as `found`.

        The nominal rate of the source if it is known, which may be fractional: measured rates include clock drift.
        """
        signals = self.found("signals")
        return float(signals.get("nominal_hz") or round(float(signals["rate_hz"])))

    def confirm(self, question: str) -> None:
        """Ask before a motion; raises `DeclinedError` unless the answer is yes."""
        if self.ask is not None and not self.ask(question):
            raise DeclinedError(question)

    def check_held(self, here: FloatArray, measured: FloatArray) -> None:
        """Check that drives hold their set positions; raises `StepFailedError` if signs or zeros have changed."""
        held = self._by_unit(_HELD, _HELD_M)
        if text := set_position_text(measured, here, self.names, held):
            raise StepFailedError(text)

    def moved(
        self, question: str, make: Trajectory | Callable[[FloatArray], Trajectory], for_s: float, *, name: str,
        found: dict[str, Any], start: FloatArray | None = None, near: bool = True, periods: int = 1,
        on_progress: Follow | None = None,
    ) -> Move:  # fmt: skip
        """Ask, and after a yes move the arm, unless it has moved since the question.

        The `question` is extended by the distance to `start` (n,), by default the arm's position. `make` is the
        trajectory of `for_s` [s] over all its periods, or makes it of the drives' set position (n,); `name` is for the
        history, and `found` holds the results of the step so far, for errors. `near`: the motion is about the posture
        of the checks; without questions an arm that was moved since is not moved.

        Raises `DeclinedError`: the answer is no; `StepFailedError`: drives do not hold their set positions, the arm has
        moved meanwhile, the start is far and nobody can be asked, or the motion is refused.
        """
        site, way = self.place.site(), ""
        announced: FloatArray | None = None
        try:
            if not self.place.rehearsal:
                announced, measured = site.where()
                self.check_held(announced, measured)
                if start is not None:
                    way = self._approach(announced, start, near=near)
            self.confirm(question + way)

            def made(here: FloatArray, measured: FloatArray) -> Trajectory:
                self.check_held(here, measured)
                if announced is not None:
                    self._check_still(announced, here)
                return make if isinstance(make, Trajectory) else make(here)

            return site.move(made, for_s, periods=periods, name=name, on_progress=on_progress)
        except StepFailedError as error:
            raise StepFailedError(str(error), error.result or found) from error

    def _approach(self, here: FloatArray, start: FloatArray, *, near: bool) -> str:
        """Return the distance from `here` (n,) to `start` (n,), as an extension of a question."""
        off = np.abs(here - start)
        ranges = np.array([joint.upper - joint.lower for joint in self.robot.model.joints])
        k = int(np.argmax(off / ranges))
        size = self.length_text(k, float(off[k]))
        if near and self.ask is None and off[k] > (0.5 * self.settings.room + _NEAR) * ranges[k]:
            raise StepFailedError(
                f"{self.names[k]} stands {size} from where the motion begins: the arm has been moved since its joints "
                "were checked; move it back, leave out --yes, or begin again by --from joints"
            )
        return f" To its start all joints go together, {self.names[k]} by {size}."

    def _check_still(self, announced: FloatArray, here: FloatArray) -> None:
        """Check that the arm still is where it was at the question (n,)."""
        off = np.abs(here - announced) / self._by_unit(_STILL, _STILL_M)
        k = int(np.argmax(off))
        if not off[k] <= 1.0:
            moved = self.length_text(k, abs(float(here[k] - announced[k])))
            raise StepFailedError(
                f"{self.names[k]} has gone {moved} since it was said how the arm would move, and nothing has "
                "moved for it: let the arm stand; the same command goes on from there"
            )

    def length_text(self, k: int, size: float) -> str:
        """Return `size` [rad or m] of joint `k` as text."""
        return f"{np.degrees(size):.3g} degrees" if self.units[k] == "rad" else f"{1e3 * size:.3g} mm"

    def _by_unit(self, turn: float, slide: float) -> FloatArray:
        """Return (n,) values: `turn` for revolute joints, `slide` for prismatic ones."""
        return np.where(np.array(self.units) == "rad", turn, slide)

    def table(self, rows: FloatArray, rate_hz: float) -> Trajectory:
        """Return a trajectory of positions (N, n) at `rate_hz`."""
        model = self.robot.model
        return Trajectory(tuple(self.names), self.units, model.name, self.robot.sha256, None, rate_hz, rows)

    def row_rate(self, duration_s: float) -> float:
        """Return the rate of a table's rows: whole numbers of cycles, and at most as many as a request holds."""
        arm_rate_hz, most = self.rate_hz, MAX_NUMBERS / self.robot.model.n - 2.0
        apart = max(1, int(np.ceil(arm_rate_hz / _ROW_RATE_HZ)), int(np.ceil(arm_rate_hz * duration_s / most)))
        return arm_rate_hz / apart


@dataclass(frozen=True)
class Step:
    """One step of a commissioning; `name` also names its file.

    `run` takes the context and returns a summary line and the results, or raises `StepFailedError`; `seconds` takes the
    context and returns the estimated duration. A `repeated` step checks the arm's present state: on a real arm each
    call repeats it as long as later steps are left.
    """

    name: str
    help: str
    run: Callable[[Context], tuple[str, dict[str, Any]]]
    seconds: Callable[[Context], float]
    repeated: bool = False


class SkippedError(Exception):
    """A step that does not apply; the message says why."""
