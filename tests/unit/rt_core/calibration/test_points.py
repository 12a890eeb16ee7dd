"""Distances from fixed points, and a ball in sockets: no instrument knows where the robot's base is."""

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.error_model import ErrorModel, Targets, error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Contacts, Distances, Sample, Spacing
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray, IntArray
from tests.lab.arms.calibration import PANDA, UR10, check_derivatives, forward, frame, postures
from tests.lab.arms.sockets import in_sockets

TOOL = np.array([0.02, -0.03, 0.12])
SOCKETS = np.array([[0.45, 0.10, 0.25], [0.45, 0.15, 0.25], [0.25, -0.35, 0.5], [0.30, -0.35, 0.5]])
SPACINGS = [Spacing(0, 1, 0.05, 1e-6), Spacing(2, 3, 0.05, 1e-6)]
NOMINAL = Geometry("mdh", rows=PANDA.rows, tip_translation=np.array([0.0, 0.0, 0.1]))


def with_points(length: bool) -> tuple[ErrorModel, Sample]:
    rng = np.random.default_rng(0)
    q = postures(UR10, 40, rng)
    model = error_model(UR10, base=False, targets=Targets(points=2, spacings=[Spacing(0, 1, 0.3)]))
    model = model.with_places(np.array([[0.5, 0.2, 0.1], [-0.4, 0.3, 0.2]]))
    numbers = np.arange(40) % 2
    return model, Sample.at_points(q, numbers, rng.uniform(0.2, 1.0, 40) if length else None)


@pytest.mark.parametrize("length", [False, True], ids=["socket", "distance"])
def test_derivatives_are_those_of_differences(length: bool) -> None:
    model, sample = with_points(length)
    x = np.random.default_rng(1).normal(0.0, 1e-3, model.size)
    check_derivatives(model, sample, x)
    h = 1e-6
    for k, e in enumerate(np.eye(model.size)):
        spacing = (model.spacing_rows(x + h * e)[0] - model.spacing_rows(x - h * e)[0]) / (2.0 * h)
        np.testing.assert_allclose(model.spacing_rows(x)[1][:, k], spacing, atol=1e-7)


@pytest.fixture(scope="module")
def panda() -> tuple[dict[str, float], FloatArray, IntArray]:
    rng = np.random.default_rng(3)
    names = [f"{k}{i}" for i in range(2, 8) for k in ("theta", "a", "alpha", "d")]
    errors = {name: float(rng.normal(0.0, 2e-3)) for name in names}
    return errors, *in_sockets(PANDA, errors, TOOL, SOCKETS, 15, rng)


def test_a_ball_in_sockets_gives_the_arm(panda: tuple[dict[str, float], FloatArray, IntArray]) -> None:
    errors, q, numbers = panda
    result = calibrate(NOMINAL, q, Contacts(numbers, SPACINGS))
    assert result.verdict == "ok"
    assert result.base is None
    assert result.training.before.mean > 1e-3
    assert result.training.after.maximum < 1e-9
    # Which parameters carry the errors is a choice where they depend on each other; where the ball goes is none.
    other, others = in_sockets(PANDA, errors, TOOL, SOCKETS + 0.1, 3, np.random.default_rng(4))
    positions, _ = result.predict(other)
    for g in range(4):
        assert np.ptp(positions[others == g], axis=0).max() < 1e-8
    gaps = [np.linalg.norm(positions[others == a][0] - positions[others == b][0]) for a, b in ((0, 1), (0, 2), (1, 3))]
    true = [np.linalg.norm(SOCKETS[a] - SOCKETS[b]) for a, b in ((0, 1), (0, 2), (1, 3))]
    np.testing.assert_allclose(gaps, true, atol=1e-8)


@pytest.mark.parametrize("known", ["left out", "spacing", "length", "prior", "tool"])
def test_an_arm_of_unknown_size_has_no_lengths(
    panda: tuple[dict[str, float], FloatArray, IntArray], known: str
) -> None:
    """Also where errors and noise hide that scaling the arm and its sockets changes nothing."""
    _, q, numbers = panda
    noisy = q + np.random.default_rng(2).normal(0.0, 5e-5, q.shape)
    settings = CalibrationSettings(
        excluded=("a4",) if known == "length" else (),
        prior_length=1e-3 if known == "prior" else None,
        tool=known != "tool",
    )
    spacings = {"spacing": SPACINGS[:1], "left out": SPACINGS[1:]}.get(known, ())
    nominal = Geometry("mdh", rows=PANDA.rows, tip_translation=TOOL) if known == "tool" else NOMINAL
    result = calibrate(nominal, noisy, Contacts(numbers, spacings), settings, use=numbers < 3)
    if known == "left out":
        assert result.verdict == "undetermined"
        assert "size of the arm" in result.reasons[0]
        assert all(p.value is None for p in result.parameters)
        assert result.tool.translation == (None, None, None)
    else:
        assert result.verdict == "ok", result.reasons
    if known == "prior":  # each length has its share of the size, which all priors together tell
        status = {p.name: (p.status, p.std) for p in result.parameters}
        assert {status[name][0] for name in ("d3", "d5")} == {"prior"}, status


def test_a_socket_that_is_not_fitted_is_where_its_other_poses_have_it(
    panda: tuple[dict[str, float], FloatArray, IntArray],
) -> None:
    """A fitted one is at their mean; of another one each pose is left out of the mean that it is judged by."""
    _, q, numbers = panda
    noisy = q + np.random.default_rng(0).normal(0.0, 2e-4, q.shape)
    use = numbers < 2
    result = calibrate(NOMINAL, noisy, Contacts(numbers, SPACINGS), use=use)
    positions, _ = result.predict(noisy)
    for i, (g, p) in enumerate(zip(numbers, positions, strict=True)):
        others = (numbers == g) if g < 2 else (numbers == g) & (np.arange(len(q)) != i)
        np.testing.assert_allclose(result.residual_after[i], p - positions[others].mean(axis=0), atol=1e-12)
    lengths = np.linalg.norm(result.residual_after[~use], axis=1)
    assert result.test.after.mean == pytest.approx(lengths.mean())
    assert result.test.count == (~use).sum()


def test_distances_from_fixed_points_give_the_arm() -> None:
    q = postures(UR10, 200, np.random.default_rng(5))
    errors = {"a2": 1e-3, "alpha2": -2e-3, "theta3": 1.5e-3, "a3": -1e-3, "theta5": 2e-3, "beta3": 1e-3}
    centres = np.array([[0.8, 0.1, 0.2], [-0.3, 0.9, 0.4], [0.1, -0.7, 1.0]])
    numbers = np.arange(200) % 3
    p = forward(UR10, q, errors, np.eye(4), frame((0.03, -0.02, 0.11), (0.0, 0.0, 0.0)))[:, :3, 3]
    length = np.linalg.norm(p - centres[numbers], axis=1)
    nominal = Geometry("dh", rows=UR10.rows, tip_translation=np.array([0.0, 0.0, 0.1]))
    result = calibrate(nominal, q, Distances(length, numbers))
    assert result.verdict == "ok"
    found = {item.name: item.value for item in result.parameters if item.name in errors}
    assert found == pytest.approx(errors, abs=1e-8)
    gap = np.linalg.norm(result.places[0] - result.places[1])
    assert gap == pytest.approx(np.linalg.norm(centres[0] - centres[1]), abs=1e-8)


def test_bad_sockets_and_distances_are_refused() -> None:
    q = postures(UR10, 30, np.random.default_rng(0))
    numbers = np.arange(30) % 2
    with pytest.raises(CalibrationError, match="socket numbers must run from 0 without a gap"):
        calibrate(UR10, q, Contacts(2 * numbers))
    with pytest.raises(CalibrationError, match=r"sockets 0 and 2 \(from 0\): there are 2"):
        calibrate(UR10, q, Contacts(numbers, [Spacing(0, 2, 0.05)]))
    with pytest.raises(CalibrationError, match="above 0"):
        calibrate(UR10, q, Contacts(numbers, [Spacing(0, 1, -0.05)]))
    with pytest.raises(CalibrationError, match="distance of pose 3"):
        calibrate(UR10, q, Distances(np.where(np.arange(30) == 3, -1.0, 1.0), numbers))
    with pytest.raises(CalibrationError, match=r"centre 1 \(from 0\) has no pose to fit"):
        calibrate(UR10, q, Distances(np.ones(30), numbers), use=numbers == 0)
    with pytest.raises(CalibrationError, match="prior_length"):
        CalibrationSettings(prior_length=0.0)
    with pytest.raises(CalibrationError, match="priors: there is no parameter 'a9'"):
        calibrate(UR10, q, np.ones((30, 3)), CalibrationSettings(priors=(("a9", 1e-3),)))
