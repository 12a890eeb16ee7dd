"""Several arms measured by one instrument: their relative bases, and whether the instrument was moved.

Each arm is calibrated by itself (`rt_core.calibration.calibrate`).  Arms share the stations of the instrument:
`rt_core.calibration.cell._base_network` adjusts the bases found by the calibrations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.calibration.cell._base_network import (
    Network,
    Placement,
    Sighting,
    Suspect,
    adjusted,
    groups,
    suspects,
    with_error_of_turns,
)
from rt_core.calibration.result import Calibration
from rt_core.calibration.settings import CalibrationError
from rt_core.types import FloatArray

CellVerdict = Literal["ok", "arms", "moved"]
_AXES = ("x", "y", "z", "rx", "ry", "rz")


@dataclass(frozen=True, eq=False)
class CellArm:
    """One of several arms."""

    name: str
    found: Calibration
    stations: tuple[int, ...]  # numbers of the instrument's stations, in the order of `found`


@dataclass(frozen=True, eq=False)
class Between:
    """Base of one arm in that of another."""

    arm: str  # whose base, in the base of `of`
    of: str
    placement: Placement
    translation_std: FloatArray  # (3,) [m] along the axes of the base of `of`
    rotation_std: FloatArray  # (3,) [rad] about those of the base of `arm`


@dataclass(frozen=True, eq=False)
class Cell:
    """Joint result of the calibrations of several arms."""

    # "ok"; "arms": some arm could not be calibrated, or its base is not determined; "moved": the arms disagree about
    # the stations of the instrument
    verdict: CellVerdict
    reasons: tuple[str, ...]  # one sentence each
    left_out: dict[str, str]  # arms left out, with the reason
    agreement: Network | None  # None with fewer than two arms to compare
    bases: tuple[Between, ...]  # of all pairs of arms; empty if stations disagree
    # arm and station, one of which may have moved, and how far [m] and [rad]
    suspects: tuple[tuple[str, int, float, float], ...]

    @property
    def checked(self) -> bool:
        """Whether two arms were measured from the same two stations, so that they could be compared."""
        return self.agreement is not None and self.agreement.loops > 0


def check_shared(names: Sequence[str], stations: Sequence[Sequence[int]]) -> None:
    """Check that the stations (numbers) of each arm connect all arms.

    Raises `CalibrationError` if they do not, so that the relative bases are unknown.
    """
    found = groups(stations)
    if len(found) > 1:
        parts = [
            " and ".join(f"{names[i]} (station {', '.join(map(str, sorted(set(stations[i]))))})" for i in group)
            for group in found
        ]
        raise CalibrationError(
            f"no place of the instrument is shared by {' and by '.join(parts)}: measure the arms from a place in "
            "common, give places that are the same the same number, or calibrate the arms one by one"
        )


def together(arms: Sequence[CellArm]) -> Cell:
    """Return the relative bases of arms that were calibrated one by one, and whether the instrument was moved.

    Raises `CalibrationError` if stations do not connect all arms.
    """
    check_shared([arm.name for arm in arms], [arm.stations for arm in arms])
    left_out = {arm.name: why for arm in arms if (why := _unusable(arm))}
    usable = [arm for arm in arms if arm.name not in left_out]
    reasons = [f"{name}: {why}" for name, why in left_out.items()]
    if len(usable) > 1 and len(groups([arm.stations for arm in usable])) > 1:
        reasons.append(f"without {' and '.join(left_out)} no place of the instrument is shared by the others")
        usable = []
    network, moved = None, list[tuple[str, int, float, float]]()
    bases: tuple[Between, ...] = ()
    if len(usable) > 1:
        sightings = [sighting(arm) for arm in usable]
        network = adjusted(sightings)
        if network.agrees:
            bases = tuple(
                _between(network, usable, one, other)
                for one in range(len(usable))
                for other in range(one + 1, len(usable))
            )
        else:
            found = suspects(sightings)
            moved = [(usable[s.arm].name, s.station, s.distance, s.angle) for s in found]
            reasons.append(moved_reason(found, [arm.name for arm in usable]))
    disagree = network is not None and not network.agrees
    verdict: CellVerdict = "arms" if left_out else "moved" if disagree else "ok"
    return Cell(verdict, tuple(reasons), left_out, network, bases, tuple(moved))


def sighting(arm: CellArm) -> Sighting:
    """Return the bases of a calibrated arm at its stations, with their covariance."""
    found, model = arm.found, arm.found.model
    rows = [found.free.index(f"{which}_{axis}") for which in model.base_names for axis in _AXES]
    bases = tuple(Placement(*model.frame(which, found.x)) for which in model.base_names)
    turns = [found.x[model.belongs_to(which)[3:]] for which in model.base_names]
    plain = Sighting(arm.stations, bases, found.covariance[np.ix_(rows, rows)], found.freedom)
    return with_error_of_turns(plain, turns)


def moved_reason(found: Sequence[Suspect], names: Sequence[str]) -> str:
    """Return the reason of the verdict "moved"."""
    places = sorted({s.station for s in found})
    if not found:
        return (
            "the arms disagree about where the instrument stood, and no single place explains it: it stood elsewhere "
            "more than once; measure the arms again from each place without moving it in between"
        )
    size = max(found, key=lambda s: s.distance)
    by = f"by up to {1e3 * size.distance:.3g} mm and {1e3 * max(s.angle for s in found):.3g} mrad"
    where = "station " + " or station ".join(map(str, places))
    those = [names[i] for i in sorted({s.arm for s in found})]
    if len(those) == 1:
        when = f"not where it was for the others while {those[0]} was measured"
    else:
        when = f"moved between {' and '.join(those)}"
    base = f"or the base of {' or '.join(those)} was moved from one place of the instrument to the next"
    if len(places) == 1:
        what = ": give what was measured from there for one of the arms another station's number, or measure it again"
    else:
        what = ", and a third place would tell which of them: measure again from there"
    return f"the instrument at {where} was {when}, {by}, {base}{what}"


def held_in_base(arm: CellArm) -> tuple[str, ...]:
    """Return the parameters of the arm that cannot be separated from its base, such as joint 1's zero."""
    frames = {f"{which}_{axis}" for which in arm.found.model.base_names for axis in _AXES}
    return tuple(
        item.name for item in arm.found.fixed if item.reason == "dependent" and frames & {name for name, _ in item.on}
    )


def _unusable(arm: CellArm) -> str:
    """Return the reason why an arm's bases are not usable; "" if they are."""
    found = arm.found
    if found.verdict != "ok":
        return f"{found.verdict}: {found.reasons[0]}" if found.reasons else found.verdict
    for which, number in zip(found.model.base_names, arm.stations, strict=True):
        open_ = [axis for axis in _AXES if f"{which}_{axis}" not in found.free]
        if open_:
            return (
                f"undetermined: these poses do not show the base at station {number} ({', '.join(open_)}): measure "
                "more poses from there, moving all joints"
            )
    return ""


def _between(network: Network, arms: Sequence[CellArm], one: int, other: int) -> Between:
    placement, covariance = network.between(one, other)
    std = np.sqrt(np.diag(covariance))
    return Between(arms[other].name, arms[one].name, placement, std[:3], std[3:])
