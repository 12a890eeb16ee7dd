"""Steps and pulses: exact derivatives, limits between samples, room made for them."""

from dataclasses import replace

import numpy as np
import pytest

from rt_core.excitation.design import Designer, design_excitation
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, FourierSeries
from rt_core.excitation.pulses import Step, SteppedMotion, add_steps, check, pulse
from rt_core.excitation.settings import ExcitationSettings
from tests.lab.arms.excitation import series_on, three

SETTINGS = ExcitationSettings(f0_hz=0.2, harmonics=3, iterations=80)
STEPS = (*pulse(0, 0.7, 0.4, 0.3, 0.2), Step(1, 2.9, 0.5, -0.15))


def motion(seed: int = 0) -> SteppedMotion:
    rng = np.random.default_rng(seed)
    return SteppedMotion(FourierSeries(0.2, np.zeros(2), *(0.2 * rng.normal(size=(2, 2, 3)))), STEPS)


def test_derivatives_are_exact() -> None:
    one = motion()
    t, h = np.linspace(0.05, 4.95, 997), 1e-4
    by = [[np.array(s) for s in (one.sample(t + k * h), one.sample(t - k * h))] for k in (1, 2)]
    found = (8.0 * (by[0][0] - by[0][1]) - (by[1][0] - by[1][1])) / (12.0 * h)
    _, dq, ddq = one.sample(t)
    np.testing.assert_allclose(dq, found[0], atol=1e-9)
    np.testing.assert_allclose(ddq, found[1], atol=1e-6)


def test_steps_stand_on_the_series() -> None:
    one = motion()
    t = np.array([0.0, 0.69, 1.1, 1.4, 1.81, 2.9, 3.4, 4.999])
    added = one.sample(t)[0] - series_on(one.series.as_dict(), t)[0]
    np.testing.assert_allclose(added[:, 0], [0.0, 0.0, 0.2, 0.2, 0.0, 0.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(added[:, 1], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.15, -0.15], atol=1e-12)


def test_what_lies_between_samples_is_bounded() -> None:
    for seed in range(2):
        one = motion(seed)
        fine = one.sample(np.linspace(0.0, 5.0, 100_001))
        for count in (40, 200):
            basis = Basis.grid(count, 0.2, 3)
            factor, added = one.between(basis)
            for k, (coarse, true) in enumerate(zip(one.sample(basis.times), fine, strict=True)):
                assert (true.max(axis=0) <= factor * coarse.max(axis=0) + added[k]).all()
                assert (true.min(axis=0) >= factor * coarse.min(axis=0) - added[k]).all()


@pytest.mark.slow
def test_room_is_made() -> None:
    model = three()
    design = design_excitation(model, SETTINGS, "gradient")
    designer = Designer(model, SETTINGS)
    steps = (*pulse(0, 1.0, 0.5, 0.2, 0.15), *pulse(2, 2.5, 0.5, 0.0, -0.05))
    assert not check(designer, SteppedMotion(design.series, steps)).accepted
    found = add_steps(designer, design.series, steps)
    assert found.accepted
    assert found.motion.series.as_dict() != design.series.as_dict()
    q, dq, ddq = found.motion.sample(np.linspace(0.0, 5.0, 20_001))
    limits = designer.constraints.limits
    assert (q >= limits.lower).all()
    assert (q <= limits.upper).all()
    assert (np.abs(dq) <= limits.velocity).all()
    assert (np.abs(ddq) <= limits.acceleration).all()
    with pytest.raises(ExcitationError, match=r"no room.*acceleration"):
        add_steps(designer, design.series, pulse(0, 1.0, 0.1, 0.2, 1.0))


@pytest.mark.parametrize(
    ("change", "what"),
    [({"joint": 2}, "joints are 0 to 1"), ({"rise_s": 0.0}, "rise_s"), ({"height": np.inf}, "height"),
     ({"start_s": 4.8}, "within the period")],
)  # fmt: skip
def test_steps_that_are_wrong(change: dict[str, float], what: str) -> None:
    with pytest.raises(ExcitationError, match=what):
        SteppedMotion(motion().series, (replace(STEPS[0], **change),))
    with pytest.raises(ExcitationError, match="hold_s"):
        pulse(0, 1.0, 0.5, -0.1, 0.2)
