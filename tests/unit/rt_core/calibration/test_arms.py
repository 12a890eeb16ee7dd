"""Several arms measured by one instrument, whose truth is known: geometry, tools, bases, places of the instrument."""

from collections.abc import Mapping

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.cell.arms import Cell, CellArm, check_shared, together
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray
from tests.lab.arms.calibration import PANDA, UR10, as_measured, forward, frame, postures, random_arm

ARMS: dict[str, Geometry] = {"left": UR10, "right": PANDA, "third": random_arm(6, "dh", np.random.default_rng(5))}
ERRORS = {
    "left": {"a2": 1e-3, "alpha1": -1.5e-3, "theta3": 2e-3, "d5": 8e-4},
    "right": {"a4": -7e-4, "alpha3": 1e-3, "theta4": -1e-3, "d5": 5e-4},
    "third": {"a3": 6e-4, "alpha2": 2e-3, "theta5": 1e-3},
}
TOOLS = {
    "left": frame((0.06, -0.04, 0.12), (0.0, 0.0, 0.0)),
    "right": frame((-0.05, 0.07, 0.1), (0.0, 0.0, 0.0)),
    "third": frame((0.03, 0.09, 0.05), (0.0, 0.0, 0.0)),
}
#: Bases of the arms in that of the first.
PLACES = {
    "left": np.eye(4),
    "right": frame((1.4, 0.3, -0.1), (0.0, 0.1, 2.8)),
    "third": frame((-0.5, 1.8, 0.2), (0.2, 0.0, -1.2)),
}
#: Base of the first arm in the instrument's frame at its places.
STATIONS = {1: frame((1.5, -2.0, 0.7), (0.4, -0.3, 2.2)), 2: frame((-3.0, 1.0, 0.2), (0.1, 0.2, -1.5))}
NOISE = 5e-5


def calibrated(
    name: str, stations: tuple[int, ...], seed: int, moved: Mapping[int, FloatArray] | None = None,
    settings: CalibrationSettings | None = None,
) -> CellArm:  # fmt: skip
    """An arm measured at 40 poses from each of the stations, of which some were `moved` (4, 4)."""
    rng = np.random.default_rng([seed, len(name)])
    geometry = ARMS[name]
    q = postures(geometry, 40 * len(stations), rng)
    station = np.arange(len(q)) % len(stations)
    measured = np.empty((len(q), 3))
    for k, number in enumerate(stations):
        base = (moved or {}).get(number, np.eye(4)) @ STATIONS[number] @ PLACES[name]
        measured[station == k] = as_measured(
            forward(geometry, q[station == k], ERRORS[name], base, TOOLS[name]), orientation=False
        )
    measured += rng.normal(0.0, NOISE, measured.shape)
    found = calibrate(geometry, q, measured, settings, station=station if len(stations) > 1 else None)
    return CellArm(name, found, stations)


def misses(cell: Cell) -> FloatArray:
    """How far each base of a pair is from the truth, in standard deviations (pairs, 6)."""
    out = []
    for pair in cell.bases:
        true = np.linalg.inv(PLACES[pair.of]) @ PLACES[pair.arm]
        away = pair.placement.translation - true[:3, 3]
        turn = true[:3, :3].T @ pair.placement.rotation
        vector = 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
        out.append(np.append(away / pair.translation_std, vector / pair.rotation_std))
    return np.array(out)


@pytest.mark.parametrize(
    ("names", "stations"),
    [(("left", "right"), (1,)), (("left", "right", "third"), (1, 2))],
    ids=["two arms, one station", "three arms, two stations"],
)
def test_how_arms_stand_to_each_other(names: tuple[str, ...], stations: tuple[int, ...]) -> None:
    scores = []
    for seed in range(2):
        cell = together([calibrated(name, stations, seed) for name in names])
        assert cell.verdict == "ok"
        assert cell.checked == (len(stations) > 1)
        assert [(pair.of, pair.arm) for pair in cell.bases] == [
            (names[i], names[j]) for i in range(len(names)) for j in range(i + 1, len(names))
        ]
        for pair in cell.bases:
            assert pair.translation_std.max() < 2e-4
            assert pair.rotation_std.max() < 3e-4
        scores.append(misses(cell))
    assert np.abs(scores).max() < 4.5
    assert 0.5 < np.sqrt(np.mean(np.square(scores))) < 1.5


def test_a_station_that_was_moved_between_arms_is_named() -> None:
    away = {2: frame((5e-4, -4e-4, 3e-4), (0.0, 2e-4, 0.0))}
    three = [calibrated(name, (1, 2), 1, away if name == "right" else None) for name in ARMS]
    assert all(arm.found.verdict == "ok" for arm in three)  # nothing in an arm by itself shows it
    cell = together(three)
    assert cell.verdict == "moved"
    assert cell.bases == ()
    assert {(arm, station) for arm, station, _, _ in cell.suspects} == {("right", 1), ("right", 2)}
    assert "or the base of right was moved" in cell.reasons[0]  # which looks the same
    # Two arms and two places: between them, and nothing tells which.
    cell = together(three[:2])
    assert cell.verdict == "moved"
    assert len(cell.suspects) == 4
    assert "a third place would tell which" in cell.reasons[0]
    # The other two agree; and given another number the moved place is one more station.
    assert together([three[0], three[2]]).verdict == "ok"
    assert together([three[0], CellArm("right", three[1].found, (1, 3)), three[2]]).verdict == "ok"


@pytest.mark.slow
def test_an_arm_that_is_not_calibrated_is_named_and_left_out() -> None:
    arms = [calibrated(name, (1, 2), 2) for name in ("left", "right")]
    tight = CalibrationSettings(range_length=1e-4, range_angle=1e-4)
    at_bound = calibrated("third", (1, 2), 2, settings=tight)
    assert at_bound.found.verdict == "at_bound"
    cell = together([*arms, at_bound])
    assert cell.verdict == "arms"
    assert list(cell.left_out) == ["third"]
    assert cell.reasons[0].startswith("third: at_bound: ")
    assert [(pair.of, pair.arm) for pair in cell.bases] == [("left", "right")]
    assert together([arms[0], at_bound]).bases == ()
    # The arm in the middle of a chain: without it nothing connects the others.
    chain = [
        CellArm("a", arms[0].found, (1, 2)), CellArm("b", at_bound.found, (2, 3)), CellArm("c", arms[1].found, (3, 4)),
    ]  # fmt: skip
    cell = together(chain)
    assert cell.verdict == "arms"
    assert cell.bases == ()
    assert "without b no place of the instrument is shared" in cell.reasons[1]


def test_arms_without_a_common_place_are_refused() -> None:
    with pytest.raises(CalibrationError, match=r"shared by left \(station 1\) and by right \(station 2, 3\)"):
        check_shared(("left", "right"), [(1,), (2, 3)])
    check_shared(("left", "right", "third"), [(1,), (1, 2), (2,)])
