"""The online estimator against its plain oracle, and what it promises about its input."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online._state import FIELDS, HEAD, INT_FIELDS, TERMS
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import EventSettings, MotionSettings, PieceSettings, SimSettings
from tests.lab.arms.simulated import random_arm
from tests.lab.online_oracle import Oracle, rows

RATE = 200.0
SETTINGS = OnlineSettings(update_hz=50.0, memory_s=8.0, excitation_s=3.0)


def arm_and_data(seed: int = 1, coupled: bool = False) -> tuple[RobotModel, SimulatedData]:
    """Three joints: rich motion, the second at rest for a while, rich again with other friction in the third."""
    model = random_arm(3, 20 + seed, coupled=coupled)
    segments = (
        PieceSettings(duration_s=14.0),
        PieceSettings(duration_s=4.0, held=("joint_2",)),
        PieceSettings(duration_s=10.0),
    )
    motion = MotionSettings(kind="schedule", seed=seed, segments=segments, candidates=1, base_frequency_hz=0.2)
    event = EventSettings(time_s=20.0, joint="joint_3", parameter="coulomb", factor=2.0)
    settings = SimSettings(rate_hz=RATE, seed=seed, events=(event,), torque_noise=0.004)
    return model, SimulatedArm(model, settings, motion).simulate(28.0)


@pytest.fixture(scope="module")
def simulated() -> tuple[RobotModel, SimulatedData]:
    return arm_and_data()


def feed(estimator: OnlineEstimator, data: SimulatedData, pick: Any = slice(None), t0_s: float = 0.0) -> None:
    q, tau = data.channels["q"], data.channels["tau"]
    for k in np.arange(data.t.size)[pick]:
        estimator.step(round((data.t[k] + t0_s) * 1e9), int(k), q[k], tau[k])


def same_estimate(a: OnlineEstimator, b: OnlineEstimator) -> bool:
    return np.array_equal(a.theta, b.theta) and np.array_equal(a.information_root, b.information_root)


@pytest.mark.parametrize("coupled", [False, True])
def test_every_update_equals_the_oracle(coupled: bool) -> None:
    model, data = arm_and_data(2, coupled)
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    estimator._next_look = len(data.t)  # the oracle knows no restart, which the change of friction brings
    base = estimator.base
    oracle = Oracle(model, base, estimator.information_root, SETTINGS, RATE)
    # The first grid point is the second frame; positions there are interpolated by themselves.
    q, tau = data.channels["q"][1:], data.channels["tau"][1:]
    finished = rows(model, base, q, tau, SETTINGS.cutoff_hz, RATE, oracle.factor)
    row = 0
    for k, t in enumerate(data.t):
        due = k - 2 >= estimator.bank.smooth.size - 1 + estimator.parallel.size - 1
        at = k - 2 - (estimator.bank.smooth.size - 1 + estimator.parallel.size - 1)
        renewed = estimator.step(round(t * 1e9), k, data.channels["q"][k], data.channels["tau"][k])
        if due and at % oracle.factor == 0:
            oracle.update(finished.Y[row], finished.tau[row], finished.share[row])
            row += 1
        else:
            assert not renewed
        if renewed:
            information = estimator.information_root.T @ estimator.information_root
            spread = np.sqrt(np.diag(oracle.I))
            assert np.abs((information - oracle.I) / np.outer(spread, spread)).max() < 1e-5
            error = spread * (estimator.theta - oracle.theta)
            assert np.abs(error).max() < 1e-5 * max(1.0, np.abs(spread * oracle.theta).max())
    assert row > 1000
    assert estimator.report().updates == oracle.updates
    assert oracle.changes >= 1  # the step of friction was noticed by both
    np.testing.assert_allclose(estimator.report().lam, oracle.lam, rtol=1e-9)
    np.testing.assert_allclose(estimator.report().sigma, np.sqrt(oracle.sigma2), rtol=1e-5)


def test_jittered_and_repeated_frames(simulated: tuple[RobotModel, SimulatedData]) -> None:
    model, data = simulated
    exact, jittered = (OnlineEstimator(model, SETTINGS, RATE) for _ in range(2))
    feed(exact, data)
    when = data.t + np.random.default_rng(0).uniform(-0.3, 0.3, data.t.size) / RATE
    smooth = {
        "q": CubicSpline(data.t, data.channels["q"])(when),
        "tau": np.stack([np.interp(when, data.t, tau) for tau in data.channels["tau"].T], axis=1),
    }
    for k, t in enumerate(when):
        jittered.step(round(t * 1e9), k, smooth["q"][k], smooth["tau"][k])
        if k % 7 == 0:  # the logger ran ahead of the robot
            jittered.step(round(t * 1e9) + 1000, k, smooth["q"][k], smooth["tau"][k])
    assert jittered.report().repeated == -(-data.t.size // 7)
    Y = regressor(model, exact.base.layout, data.q, data.dq, data.ddq)
    assert np.linalg.norm(Y @ (jittered.theta - exact.theta)) < 0.005 * np.linalg.norm(Y @ exact.theta)


def test_a_gap_restarts_the_filters_and_keeps_the_parameters(simulated: tuple[RobotModel, SimulatedData]) -> None:
    model, data = simulated
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    feed(estimator, data, slice(2000))
    theta, root = estimator.theta, estimator.information_root
    full = estimator.bank.smooth.size + estimator.parallel.size  # a frame short of the first finished row
    feed(estimator, data, slice(2100, 2100 + full))
    assert np.array_equal(estimator.theta, theta)
    assert np.array_equal(estimator.information_root, root)
    feed(estimator, data, slice(2100 + full, 2100 + full + 8))
    assert not np.array_equal(estimator.theta, theta)
    assert estimator.report().lost == 100


def test_short_losses_are_bridged(simulated: tuple[RobotModel, SimulatedData]) -> None:
    model, data = simulated
    whole, holed = (OnlineEstimator(model, SETTINGS, RATE) for _ in range(2))
    feed(whole, data, slice(2400))
    feed(holed, data, np.delete(np.arange(2400), [500, 901, 1402, 1403, 2000]))
    assert holed.report().lost == 5
    assert holed.report().updates > 0.7 * whole.report().updates  # the filters go on; rows near a loss are left out
    assert np.abs((holed.theta - whole.theta) / holed.report().std).max() < 1.0


@pytest.mark.parametrize(
    ("lost", "jerked", "without_influence"),
    [
        ([900, 1500, 1501], [899, 901, 1499, 1502, 1503], True),
        ([1000], [1051], False),  # farther from the loss than a period and ten times its length
        ([1000, 1001, 1002], [1053], True),
    ],
)
def test_torque_beside_a_loss_has_no_influence(
    simulated: tuple[RobotModel, SimulatedData], lost: list[int], jerked: list[int], without_influence: bool
) -> None:
    """A drive without a set point jerks: the frames around show a part of it only; a longer loss takes longer."""
    model, data = simulated
    calm, spoilt = (OnlineEstimator(model, SETTINGS, RATE) for _ in range(2))
    keep = np.delete(np.arange(1800), lost)
    feed(calm, data, keep)
    tau = data.channels["tau"].copy()
    tau[jerked] += 0.3 * np.abs(tau).max(axis=0)
    feed(spoilt, replace(data, channels=data.channels | {"tau": tau}), keep)
    assert np.array_equal(spoilt.theta, calm.theta) == without_influence
    assert np.array_equal(spoilt.covariance, calm.covariance) == without_influence


def test_masked_frames_leave_the_estimate_as_it_is(simulated: tuple[RobotModel, SimulatedData]) -> None:
    model, data = simulated
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    feed(estimator, data, slice(1500))
    state = estimator.state()
    good, tau = data.channels["q"][1500], data.channels["tau"][1500]
    for k in range(20):
        q, valid = (
            (good, np.array([True, False, True])) if k % 2 else (np.add(good, [0.0, 0.0, np.inf]), np.ones(3, bool))
        )
        assert not estimator.step(round(data.t[1500 + k] * 1e9), 1500 + k, q, tau, valid)
    np.testing.assert_array_equal(estimator.state()["floats"], state["floats"])
    assert estimator.report().masked == 20
    assert estimator.report().frames == 1520


def test_saved_and_restored_it_goes_on_to_the_bit(simulated: tuple[RobotModel, SimulatedData]) -> None:
    model, data = simulated
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    feed(estimator, data, slice(2300))
    estimator.report()
    state = estimator.state()
    other = OnlineEstimator(model, SETTINGS, RATE)
    other.restore(state)
    assert same_estimate(estimator, other)
    estimator.restart_stream()
    for one in (estimator, other):
        feed(one, data, slice(2300, 3600), t0_s=100.0)
    assert same_estimate(estimator, other)
    a, b = estimator.report(), other.report()
    assert a.status == b.status
    np.testing.assert_array_equal(a.std, b.std)
    np.testing.assert_array_equal(a.excited, b.excited)
    assert (a.updates, a.frames, a.lost) == (b.updates, b.frames, b.lost)


def with_nan_in(field: str) -> dict[str, Any]:
    spoilt = OnlineEstimator(random_arm(2, 1), SETTINGS, RATE)
    spoilt._state[field].flat[-1] = np.nan
    return spoilt.state()


def test_a_damaged_state_is_refused_and_changes_nothing() -> None:
    estimator = OnlineEstimator(random_arm(2, 1), SETTINGS, RATE)
    state, meta = estimator.state(), estimator.meta
    old, floats, ints = earlier(estimator, 4), state["floats"], state["ints"]
    at = np.arange(ints.size)
    damaged: list[tuple[dict[str, Any], str]] = [
        ({name: value for name, value in state.items() if name != "validated"}, "state lacks validated"),
        (state | {"format": 99}, "state format 99"),
        (old | {"format": 3}, "state format 3"),
        (state | {"floats": floats[:-8]}, "state has another size"),
        (old | {"floats": np.append(old["floats"], 0.0)}, "state has another size"),
        (state | {"floats": np.zeros_like(floats)}, "state"),
        (state | {"ints": ints + (at == 0)}, "state has other sizes"),
        (state | {"ints": ints + (at >= ints.size - 3)}, "state has another layout"),
        *((with_nan_in(field), f"not finite in {field}$") for field in ("R", "load_theta", "weight2")),
        (state | {"trust_theta": np.nan * state["trust_theta"]}, "not finite in trust_theta$"),
    ]
    for wrong in (HEAD + 3, HEAD + len(FIELDS) - 6, 0):
        moved = old["ints"].copy()
        moved[wrong] += 8
        damaged.append((old | {"ints": moved}, "another layout|other sizes"))
    for spoilt, words in damaged:
        with pytest.raises(ValueError, match=words):
            estimator.restore(spoilt)
    np.testing.assert_array_equal(estimator.state()["floats"], floats)
    np.testing.assert_array_equal(estimator.state()["ints"], ints)
    assert estimator.meta == meta


def test_the_state_of_another_robot_or_other_settings_is_refused() -> None:
    model = random_arm(2, 1)
    state = OnlineEstimator(model, SETTINGS, RATE).state()
    for other in (
        OnlineEstimator(replace(model, gravity=np.array([0.0, 0.0, -9.81])), SETTINGS, RATE),
        OnlineEstimator(model, replace(SETTINGS, memory_s=9.0), RATE),
        OnlineEstimator(model, SETTINGS, 2 * RATE),
        OnlineEstimator(model, SETTINGS, RATE, has_dq=True),
    ):
        with pytest.raises(ValueError, match="another robot or other settings"):
            other.restore(state)


def test_reset_forgets_all_that_was_learned(simulated: tuple[RobotModel, SimulatedData]) -> None:
    model, data = simulated
    used, fresh = (OnlineEstimator(model, SETTINGS, RATE) for _ in range(2))
    feed(used, data, slice(2500))
    used.reset()
    assert not used.theta.any()
    assert used.report().resets == 1
    assert used.report().frames == 2500
    for one in (used, fresh):
        feed(one, data, slice(0, 1500), t0_s=50.0)
    assert same_estimate(used, fresh)


def test_statuses_over_a_run() -> None:
    model, data = arm_and_data(3)
    estimator = OnlineEstimator(model, replace(SETTINGS, stale_s=3.0), RATE)
    assert set(estimator.report().status) == {"unestimated"}
    feed(estimator, data, slice(round(13.5 * RATE)))
    rich = estimator.report()
    assert rich.status.count("estimated") >= 0.8 * len(rich.status)
    assert rich.excited.mean() > 0.8
    still = data.channels["q"][round(13.5 * RATE)]
    torque = data.channels["tau"][round(13.5 * RATE)]
    rng = np.random.default_rng(0)
    for k in range(round(12.0 * RATE)):  # nothing moves
        estimator.step(round((13.5 + k / RATE) * 1e9), 10_000 + k, still, torque + 1e-3 * rng.standard_normal(3))
    rest = estimator.report()
    assert not rest.excited.any()
    assert rest.status.count("frozen") >= 0.8 * len(rest.status)
    np.testing.assert_array_equal(rest.validated[rich.excited], rest.theta[rich.excited])


def test_a_torque_that_the_model_cannot_explain_is_called_invalid() -> None:
    model, data = arm_and_data(4)
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    rng = np.random.default_rng(1)
    q, tau = data.channels["q"], data.channels["tau"].copy()
    slow = np.repeat(rng.standard_normal((data.t.size // 40 + 1, 3)), 40, axis=0)[: data.t.size]
    tau[:, 2] = 5.0 * slow[:, 2]  # a channel that has nothing to do with the arm
    for k, t in enumerate(data.t[:2700]):
        estimator.step(round(t * 1e9), k, q[k], tau[k])
    report = estimator.report()
    assert dict(zip(estimator.base.names, report.status, strict=True))["fc3"] == "invalid"
    assert np.isnan(report.validated[estimator.base.names.index("fc3")])


@pytest.mark.parametrize("update_hz", [200.0, 8.0])
def test_live_torque_belongs_to_the_newest_filtered_sample(update_hz: float) -> None:
    model = replace(random_arm(2, 33, friction=False), friction=Friction("none"), offset=False)
    settings = SimSettings(rate_hz=RATE, seed=2, encoder_bits=None, torque_noise=0.0)
    data = SimulatedArm(model, settings, MotionSettings(seed=3, candidates=1)).simulate(3.0)
    estimator = OnlineEstimator(model, replace(SETTINGS, update_hz=update_hz), RATE)
    estimator.set_active(estimator.base.theta(standard_parameters(model, estimator.base.standard)))
    assert estimator.torque() is None
    checked = 0
    for k, t in enumerate(data.t):
        estimator.step(round(t * 1e9), k, data.channels["q"][k], data.channels["tau"][k])
        live = estimator.torque()
        if live is None or k < 300:
            continue
        at = round(live[0] * 1e-9 * RATE)
        assert k - at == estimator.bank.delay + 1
        assert np.abs(live[2] - data.tau[at]).max() < 0.02 * np.abs(data.tau).max()
        np.testing.assert_array_equal(live[3], live[1] - live[2])
        checked += 1
    assert checked > 200


BEYOND = {"cutoff_hz": 0.0, "memory_s": -1.0, "alpha": 1.0, "beta": 0.5, "excess_off": 7.0, "max_gap_s": 0.0}


@pytest.mark.parametrize(("name", "value"), [*BEYOND.items(), ("min_velocity", (-0.1,))])
def test_settings_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        OnlineSettings(**{name: value})


def test_settings_that_do_not_fit_the_arm() -> None:
    model = random_arm(2, 1)
    with pytest.raises(ValueError, match="cut-off"):
        OnlineEstimator(model, OnlineSettings(cutoff_hz=60.0), 100.0)
    with pytest.raises(ValueError, match="min_velocity has 3 values for 2 joints"):
        OnlineEstimator(model, OnlineSettings(min_velocity=(0.1, 0.1, 0.1)), 200.0)
    with pytest.raises(ValueError, match="rate must be positive"):
        OnlineEstimator(model, OnlineSettings(), 0.0)
    with pytest.raises(ValueError, match="prior has 2 values"):
        OnlineEstimator(model, OnlineSettings(), 200.0, prior=np.zeros(2))
    estimator = OnlineEstimator(model, OnlineSettings(), 200.0)
    with pytest.raises(ValueError, match="theta of the active model must be"):
        estimator.set_active(np.zeros(1))
    with pytest.raises(ValueError, match="measured velocity"):
        OnlineEstimator(model, SETTINGS, RATE, has_dq=True).step(0, 0, np.zeros(2), np.zeros(2))


def earlier(estimator: OnlineEstimator, version: int) -> dict[str, Any]:
    """What an estimator without an active model would have saved as format 4 or 5: without the fields added since."""
    state = estimator.state()
    ints, floats = state["ints"], state["floats"]
    added = list(range(FIELDS.index("active" if version == 4 else "payload"), len(FIELDS)))
    assert len(added) == {4: 7, 5: 4}[version]
    head = HEAD + len(FIELDS)
    shorter = np.delete(ints, [HEAD + k for k in added])
    first = head - len(added)
    shorter[first : first + len(INT_FIELDS)] -= len(added)  # integer fields begin earlier
    shorter[TERMS] = 0
    return state | {"format": version, "floats": floats[: ints[HEAD + added[0]]], "ints": shorter}


@pytest.mark.parametrize("version", [4, 5])
def test_a_state_of_an_earlier_format_is_taken_over(simulated: tuple[RobotModel, SimulatedData], version: int) -> None:
    model, data = simulated
    before, other, after = (OnlineEstimator(model, SETTINGS, RATE) for _ in range(3))
    feed(before, data, slice(1500))
    other.restore(before.state())
    after.set_active(np.ones(len(after.base)))
    feed(after, data, slice(900))
    assert after.residual_power[1].any()
    after.set_active(None)
    after.restore(earlier(before, version))
    assert not after.residual_power[1].any()
    np.testing.assert_array_equal(after.state()["ints"], other.state()["ints"])
    np.testing.assert_array_equal(after.state()["floats"], other.state()["floats"])
    for estimator in (other, after):
        feed(estimator, data, slice(1500, 2500))
    for name in ("theta", "std", "sigma", "validated"):
        np.testing.assert_array_equal(getattr(after.report(), name), getattr(other.report(), name))
