"""Trajectory files, with names of joints and units: `trajectory.json` (a Fourier series) and tables; their requests."""

import csv
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import FourierSeries
from rt_core.types import FloatArray

FORMAT = "thetad-excitation/1"
UNITS = ("rad", "m")
#: Numbers of a table: more would take too long to unpack between two frames.
MAX_NUMBERS = 8_000
#: Cycles of one period of a trajectory or table.
MAX_CYCLES = 200_000
#: Harmonics of a series: more would take too long to sample between two frames.
MAX_HARMONICS = 100
MAX_BYTES = 1 << 24
MAX_PERIODS = 10_000
_MAX_JOINTS = 64
_COLUMN = re.compile(r"(?P<joint>\S.*) (?P<symbol>q|dq|ddq) \[(?P<unit>[^\]]*)\]")
#: Tolerance of the times of a table, in steps.
_JITTER = 1e-3


class TrajectoryError(ValueError):
    """A trajectory that cannot be used; the message names place, problem and remedy."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A trajectory of some joints, from rest to rest: a Fourier series, or a table of positions."""

    joints: tuple[str, ...]  # in order
    units: tuple[str, ...]  # "rad" or "m"
    robot: str = ""  # that it was designed for; empty if unknown
    robot_sha256: str = ""
    series: FourierSeries | None = None
    rate_hz: float = 0.0  # of the table; 0 of a series
    table: FloatArray | None = None  # (N, n): one period with both its ends [rad] or [m]

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joints)

    @property
    def period_s(self) -> float:
        """Length of one period."""
        if self.series is not None:
            return self.series.period_s
        assert self.table is not None
        return (len(self.table) - 1) / self.rate_hz

    def as_message(self) -> dict[str, Any]:
        """Return JSON values for a request, the inverse of `from_message`.

        Raises `TrajectoryError`: a table that is too large for a request.
        """
        head: dict[str, Any] = {"joints": list(self.joints), "units": list(self.units)}
        head |= {"robot": self.robot, "robot_sha256": self.robot_sha256}
        if self.series is not None:
            return head | self.series.as_dict()
        assert self.table is not None
        if self.table.size > MAX_NUMBERS:
            raise TrajectoryError(
                f"the table has {self.table.size} positions, a request holds {MAX_NUMBERS}: write it with fewer rows "
                "a second (they are joined smoothly), or as the coefficients of a Fourier series"
            )
        return head | {"rate_hz": self.rate_hz, "q": self.table.tolist()}

    @classmethod
    def from_message(cls, message: object) -> "Trajectory":
        """Check and convert the result of `as_message`; raises `TrajectoryError`."""
        if not isinstance(message, Mapping):
            raise TrajectoryError("trajectory: expected a map")
        joints, units = _texts(message, "joints"), _texts(message, "units")
        robot, sha = message.get("robot", ""), message.get("robot_sha256", "")
        if not isinstance(robot, str) or not isinstance(sha, str):
            raise TrajectoryError("trajectory: robot and robot_sha256 have to be texts")
        if "q" in message:
            rows = message["q"]
            if isinstance(rows, list) and len(rows) * len(joints) > MAX_NUMBERS:
                raise TrajectoryError(f"q: {len(rows)} rows of {len(joints)} positions, at most {MAX_NUMBERS} numbers")
            return _from_table(joints, units, robot, sha, message.get("rate_hz"), rows)
        return _from_series(joints, units, robot, sha, message)

    def check_arm(self, joints: Sequence[str], units: Sequence[str], robot: str, sha256: str, *, changed: bool) -> None:
        """Check that the trajectory fits an arm; `changed` allows another version of the same robot's file.

        Raises `TrajectoryError`: joints, their order, their units or the robot differ.
        """
        mine, its = list(self.joints), list(joints)
        if mine != its:
            what = "in another order" if sorted(mine) == sorted(its) else "others"
            raise TrajectoryError(
                f"the joints of the trajectory are {what}: it has {', '.join(mine)}, the arm {', '.join(its)}"
            )
        for joint, unit, wanted in zip(its, self.units, units, strict=True):
            if unit != wanted:
                raise TrajectoryError(f"joint {joint} is in {unit} in the trajectory, and in {wanted} on the arm")
        if self.robot and self.robot != robot:
            raise TrajectoryError(f"the trajectory is for robot {self.robot!r}, the arm is a {robot!r}")
        if self.robot_sha256 and self.robot_sha256 != sha256 and not changed:
            raise TrajectoryError(
                f"the trajectory was designed on another version of the description of robot {robot!r} (SHA-256 "
                f"{self.robot_sha256[:12]}, now {sha256[:12]}): design it again, or allow a changed description"
            )

    def cycles(self, period_s: float) -> int:
        """Return the number of the arm's cycles in one period.

        Raises `TrajectoryError`: the number is not whole or too large, or the table is finer than the arm's cycle.
        """
        count = self.period_s / period_s
        if not 2 <= count <= MAX_CYCLES:
            raise TrajectoryError(f"a period of {self.period_s:g} s has {count:g} cycles: 2 to {MAX_CYCLES} can be run")
        whole = round(count)
        if abs(count - whole) > 1e-6:
            raise TrajectoryError(
                f"a period of {self.period_s:.9g} s is not a whole number of cycles of {1e3 * period_s:g} ms: choose a "
                f"period such as {whole * period_s:.9g} s"
            )
        if self.rate_hz * period_s > 1.0 + 1e-9:
            raise TrajectoryError(
                f"the table has {self.rate_hz:g} rows a second, and the arm {1.0 / period_s:g} cycles: write it with "
                "at most as many"
            )
        return whole

    def positions(self, times: FloatArray) -> FloatArray:
        """Return positions (N, n) at `times` (N,) of one period [s]; tables by cubic splines, at rest at both ends."""
        if self.series is not None:
            return self.series.sample(times)[0]
        return np.asarray(self._spline(times))

    @cached_property
    def _spline(self) -> Any:
        from scipy.interpolate import CubicSpline

        assert self.table is not None
        return CubicSpline(np.arange(len(self.table)) / self.rate_hz, self.table, bc_type="clamped")


def read_trajectory(path: Path) -> Trajectory:
    """Read a trajectory: JSON by its suffix or its first character, else comma-separated values.

    Raises `TrajectoryError`: the file cannot be read, or its trajectory cannot be used.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TrajectoryError(f"{path}: is larger than {MAX_BYTES >> 20} MiB: no trajectory that can be run")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TrajectoryError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TrajectoryError(f"{path}: is not text: {error}") from error
    is_json = path.suffix.lower() == ".json" or text.lstrip().startswith("{")
    try:
        return _parse_json(text) if is_json else _parse_csv(text)
    except TrajectoryError as error:
        raise TrajectoryError(f"{path}: {error}") from None


def column(joint: str, symbol: str, unit: str) -> str:
    """Return the name of a table's column: `joint_1 dq [rad/s]`."""
    power = {"q": "", "dq": "/s", "ddq": "/s^2"}[symbol]
    return f"{joint} {symbol} [{unit}{power}]"


def series_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what the trajectory of a design is made of."""
    content = [document.get(key) for key in ("robot", "joints", "units", "f0_hz", "q0", "a", "b")]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _parse_json(text: str) -> Trajectory:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TrajectoryError(f"is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise TrajectoryError(f"its format is {found!r}: expected {FORMAT!r}, a trajectory.json of a design")
    if document.get("series_sha256", wanted := series_digest(document)) != wanted:
        raise TrajectoryError("series_sha256 does not match joints, units and coefficients: it was edited or damaged")
    robot = document.get("robot")
    if not isinstance(robot, dict):
        robot = {}
    joints, units = _texts(document, "joints"), _texts(document, "units")
    return _from_series(joints, units, str(robot.get("name", "")), str(robot.get("sha256", "")), document)


def _from_series(
    joints: tuple[str, ...], units: tuple[str, ...], robot: str, sha256: str, message: Mapping[str, Any]
) -> Trajectory:
    _check_joints(joints, units)
    try:
        series = FourierSeries.from_dict(message)
    except ExcitationError as error:
        raise TrajectoryError(str(error)) from error
    if series.harmonics > MAX_HARMONICS:
        raise TrajectoryError(f"{series.harmonics} harmonics: at most {MAX_HARMONICS} can be run")
    if series.n != len(joints):
        raise TrajectoryError(f"coefficients of {series.n} joints, and names of {len(joints)}")
    return Trajectory(joints, units, robot, sha256, series)


def _from_table(
    joints: tuple[str, ...], units: tuple[str, ...], robot: str, sha256: str, rate_hz: object, rows: object
) -> Trajectory:
    _check_joints(joints, units)
    if not isinstance(rate_hz, (int, float)) or isinstance(rate_hz, bool) or not 0.0 < rate_hz < 1e6:
        raise TrajectoryError(f"rate_hz: {rate_hz!r} is not a valid rate")
    try:
        table = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TrajectoryError(f"q: is not a table of numbers: {error}") from None
    if table.ndim != 2 or table.shape[0] < 3 or table.shape[1] != len(joints):
        raise TrajectoryError(f"q: has shape {table.shape}: expected at least 3 rows of {len(joints)} positions")
    if not np.isfinite(table).all():
        row, joint = np.argwhere(~np.isfinite(table))[0]
        raise TrajectoryError(f"joint {joints[joint]}: {table[row, joint]} is not a position, at {row / rate_hz:g} s")
    return Trajectory(joints, units, robot, sha256, None, float(rate_hz), table)


def _check_joints(joints: tuple[str, ...], units: tuple[str, ...]) -> None:
    if not 0 < len(joints) <= _MAX_JOINTS or len(set(joints)) < len(joints):
        raise TrajectoryError(f"joints: {', '.join(joints) or 'none'}: expected 1 to {_MAX_JOINTS} different names")
    if len(units) != len(joints):
        raise TrajectoryError(f"{len(units)} units for {len(joints)} joints")
    for joint, unit in zip(joints, units, strict=True):
        if unit not in UNITS:
            what = "degrees" if unit.lower().startswith("deg") or unit == "°" else repr(unit)
            raise TrajectoryError(f"joint {joint} is in {what}: write its positions in rad, or m of a slide")


def _texts(message: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = message.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TrajectoryError(f"{key}: expected a list of texts, one for each joint, so that it can be checked")
    return tuple(value)


def _parse_csv(text: str) -> Trajectory:
    try:
        lines = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise TrajectoryError(f"is not a table of comma-separated values: {error}") from None
    if not lines or lines[0][:1] != ["t [s]"]:
        first = lines[0][0] if lines and lines[0] else ""
        raise TrajectoryError(
            f"the first column is {first!r}: a table begins with the line `t [s],joint_1 q [rad],joint_2 q [rad],...`, "
            "which names joints and units so that they can be checked"
        )
    joints, units, places = [], [], []
    for place, name in enumerate(lines[0][1:], start=1):
        match = _COLUMN.fullmatch(name.strip())
        if match is None:
            wanted = column("joint_1", "q", "rad")
            raise TrajectoryError(f"column {place + 1} is {name!r}: expected one such as {wanted!r}")
        if match["symbol"] == "q":
            joints.append(match["joint"])
            units.append(match["unit"])
            places.append(place)
    width = len(lines[0])
    rows = []
    for number, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        if len(cells) != width:
            raise TrajectoryError(f"line {number} has {len(cells)} values, the first has {width}")
        try:
            rows.append([float(cells[place]) for place in (0, *places)])
        except ValueError as error:
            raise TrajectoryError(f"line {number}: {error}") from None
    if not joints:
        raise TrajectoryError("no column holds positions, such as `joint_1 q [rad]`")
    if len(rows) < 3:
        raise TrajectoryError(f"it has {len(rows)} rows: at least 3 are needed")
    values = np.array(rows)
    return _from_table(tuple(joints), tuple(units), "", "", _rate(values[:, 0]), values[:, 1:])


def _rate(t: FloatArray) -> float:
    """Return the rate of rows at the times `t`; raises `TrajectoryError` unless they are equidistant from 0 on."""
    bad = ~np.isfinite(t)
    if bad.any():
        raise TrajectoryError(f"line {int(np.argmax(bad)) + 2}: {t[np.argmax(bad)]} is not a time")
    step = (t[-1] - t[0]) / (t.size - 1)
    if t[0] != 0.0 or not step > 0.0:
        raise TrajectoryError(f"times go from {t[0]:g} to {t[-1]:g} s: they have to begin at 0 and grow")
    off = np.abs(t - step * np.arange(t.size))
    if off.max() > _JITTER * step:
        row = int(np.argmax(off))
        raise TrajectoryError(
            f"line {row + 2}: the time {t[row]:.9g} s is not {row} times {step:.9g} s: rows have to be equidistant"
        )
    rate = 1.0 / step
    return round(rate) if abs(rate - round(rate)) < 1e-6 * rate and round(rate) else float(rate)
