"""What the steps of a commissioning share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from drivers.files.robots.file import RobotFile
from rt_core.commissioning.at_rest import set_position_text
from rt_core.types import FloatArray
from service.commission._site import Follow, Move, Site
from service.commission.errors import DeclinedError, StepFailedError
from service.commission.folder import Folder
from service.commission.settings import CommissionSettings, Payload
from service.io.trajectory_file import MAX_NUMBERS, Trajectory

#: Rows of a table a second at most: they are joined by cubics.
_ROW_RATE_HZ = 50.0

#: Distance between measured and set position of drives that hold [rad, m]; share of the range that counts as near.
_HELD, _HELD_M, _NEAR = 0.05, 0.005, 0.05
#: By how much an arm may have given way since it was said how it would move [rad, m]: the play of its brakes.
_STILL, _STILL_M = np.radians(0.5), 0.001

#: Asks a question that is answered by yes or no.
Ask = Callable[[str], bool]


class Place(Protocol):
    """Where the arm is: a running daemon, or a rehearsal with one of its own."""

    rehearsal: bool

    def site(self) -> Site:
        """Return the arm, connecting or starting it the first time."""

    def mount(self, payload: Payload | None) -> None:
        """Put a payload on the flange, or take it off; raises `StepFailedError` if that cannot be done unattended."""


@dataclass
class Context:
    """Surroundings of a step.

    Attributes
    ----------
    robot : RobotFile
    settings : CommissionSettings
    folder : Folder
    place : Place
    ask : callable or None
        None: nobody is there to be asked, and all motions are allowed.
    tell : callable
        Takes the share of the step that is done, and what is being done.
    """

    robot: RobotFile
    settings: CommissionSettings
    folder: Folder
    place: Place
    ask: Ask | None = None
    tell: Callable[[float, str], None] = field(default=lambda _share, _what: None)

    @property
    def names(self) -> list[str]:
        """Names of the joints."""
        return [joint.name for joint in self.robot.model.joints]

    @property
    def units(self) -> tuple[str, ...]:
        """Unit of each joint's position."""
        return tuple("rad" if joint.kind == "revolute" else "m" for joint in self.robot.model.joints)

    def found(self, step: str) -> dict[str, Any]:
        """Return what an earlier step found.

        Raises
        ------
        StepFailedError
            It has not been done.
        """
        result = self.folder.result(step)
        if result is None:
            raise StepFailedError(f"step {step} has not been done: repeat from there by --from {step}")
        return result

    @property
    def rate_hz(self) -> float:
        """The arm's cycles a second; raises `StepFailedError` as `found`.

        It is the one that the source states, which need be no whole number, where it does: measured ones have the drift
        of a clock in them.
        """
        signals = self.found("signals")
        return float(signals.get("nominal_hz") or round(float(signals["rate_hz"])))

    def confirm(self, question: str) -> None:
        """Ask before something moves; raises `DeclinedError` unless the answer is yes."""
        if self.ask is not None and not self.ask(question):
            raise DeclinedError(question)

    def check_held(self, here: FloatArray, measured: FloatArray) -> None:
        """See that positions are where drives hold them; raises `StepFailedError` if signs or zeros have changed."""
        held = self._by_unit(_HELD, _HELD_M)
        if text := set_position_text(measured, here, self.names, held):
            raise StepFailedError(text)

    def moved(
        self,
        question: str,
        make: Callable[[FloatArray], Trajectory],
        for_s: float,
        *,
        name: str,
        found: dict[str, Any],
        start: FloatArray | None = None,
        near: bool = True,
        periods: int = 1,
        on_progress: Follow | None = None,
    ) -> Move:
        """Ask, and after a yes move the arm, if it still stands where it stood when the question was asked.

        Parameters
        ----------
        question : str
            Beside it is said how far the arm goes to `start`.
        make : callable
            Takes where the drives hold the arm (n,); returns the trajectory.
        for_s : float
            Length of all periods.
        name : str
            For the history.
        found : dict
            What the step has found until now, for errors.
        start : (n,) float64, optional
            Where the motion begins; None: where the arm stands.
        near : bool
            It is one about the posture of the checks: unattended an arm that has been moved since stays.

        Raises
        ------
        DeclinedError
            The answer is no.
        StepFailedError
            Positions are not where drives hold them, the arm has been moved meanwhile, the start is far and nobody is
            there to be asked, or the motion is refused.
        """
        site, way = self.place.site(), ""
        told: FloatArray | None = None
        try:
            if not self.place.rehearsal:
                told, measured = site.where()
                self.check_held(told, measured)
                if start is not None:
                    way = self._approach(told, start, near=near)
            self.confirm(question + way)

            def made(here: FloatArray, measured: FloatArray) -> Trajectory:
                self.check_held(here, measured)
                if told is not None:
                    self._check_still(told, here)
                return make(here)

            return site.move(made, for_s, periods=periods, name=name, on_progress=on_progress)
        except StepFailedError as error:
            raise StepFailedError(str(error), error.result or found) from error

    def _approach(self, here: FloatArray, start: FloatArray, *, near: bool) -> str:
        """Say how far the arm goes from `here` (n,) to `start` (n,), for a question."""
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

    def _check_still(self, told: FloatArray, here: FloatArray) -> None:
        """See that the arm stands where it was `told` (n,) to stand."""
        off = np.abs(here - told) / self._by_unit(_STILL, _STILL_M)
        k = int(np.argmax(off))
        if not off[k] <= 1.0:
            raise StepFailedError(
                f"{self.names[k]} has gone {self.length_text(k, abs(float(here[k] - told[k])))} since it was said how "
                "the arm would move, and nothing has moved for it: let the arm stand; the same command goes on from "
                "there"
            )

    def length_text(self, k: int, size: float) -> str:
        """Say how far `size` [rad or m] of joint `k` is."""
        return f"{np.degrees(size):.3g} degrees" if self.units[k] == "rad" else f"{1e3 * size:.3g} mm"

    def _by_unit(self, turn: float, slide: float) -> FloatArray:
        """(n,) values of which `turn` is that of revolute joints."""
        return np.where(np.array(self.units) == "rad", turn, slide)

    def table(self, rows: FloatArray, rate_hz: float) -> Trajectory:
        """Make a trajectory of positions (N, n), `rate_hz` of them a second."""
        return Trajectory(self.names_tuple, self.units, self.robot.model.name, self.robot.sha256, None, rate_hz, rows)

    @property
    def names_tuple(self) -> tuple[str, ...]:
        """Names of the joints, as trajectories have them."""
        return tuple(self.names)

    def row_rate(self, duration_s: float) -> float:
        """Rate of a table's rows: a whole number of the arm's cycles each, and as many as a request holds."""
        arm_rate_hz, most = self.rate_hz, MAX_NUMBERS / self.robot.model.n - 2.0
        apart = max(1, int(np.ceil(arm_rate_hz / _ROW_RATE_HZ)), int(np.ceil(arm_rate_hz * duration_s / most)))
        return arm_rate_hz / apart


@dataclass(frozen=True)
class Step:
    """One step of a commissioning.

    Attributes
    ----------
    name : str
        Also that of its file.
    help : str
    run : callable
        Takes the context; returns a line for people and what it found; raises `StepFailedError`.
    seconds : callable
        Takes the context; about how long it takes.
    repeated : bool
        It says how the arm is now: with a real one each call does it again, as long as there is something left to do.
    """

    name: str
    help: str
    run: Callable[[Context], tuple[str, dict[str, Any]]]
    seconds: Callable[[Context], float]
    repeated: bool = False


class SkippedError(Exception):
    """A step that does not apply; the message says why."""
