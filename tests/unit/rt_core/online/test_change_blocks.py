"""The detector of changes on made-up rows: what it says and keeps, without an arm around it."""

from types import SimpleNamespace

import numpy as np
import pytest

from rt_core.model.friction import LAW_COULOMB, LAW_LINK, LAW_OFFSET, LAW_VISCOUS
from rt_core.online.monitors.change import ChangeDetector
from rt_core.online.monitors.change_report import ArmChange
from rt_core.online.monitors.change_rules import ChangeSettings
from rt_core.online.monitors.drift import Watched
from rt_core.online.monitors.residual_evidence import Evidence

N = 3
ROWS = 50  # of a block of half a second
JOINTS = tuple(f"joint_{j + 1}" for j in range(N))
NAMES = tuple(f"{symbol}{j + 1}" for j in range(N) for symbol in ("fv", "fc", "off", "m"))
LAYOUT = SimpleNamespace(
    law=np.tile([LAW_VISCOUS, LAW_COULOMB, LAW_OFFSET, LAW_LINK], N),
    source=np.array([s for j in range(N) for s in (j, j, j, 10 * j)]),
    motor=np.repeat(np.eye(N), 4, axis=0) * np.tile([1.0, 1.0, 1.0, 0.0], N)[:, None],
)
WIDTH = 15
FRICTION, GAIN, OFFSET = 11, 12, 13


def detector(**settings: float) -> ChangeDetector:
    made = ChangeDetector(Watched(NAMES, JOINTS, LAYOUT), 0.01, 10.0, ChangeSettings(**settings))  # type: ignore[arg-type]
    made.set_model(True)
    return made


class Arm:
    """Random features, and a residual of them with noise; half a second at a time."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.coefficients = np.zeros((N, WIDTH - 1))
        self.noise = np.array([0.1, 1.0, 0.01])
        self.moving = np.ones(N, bool)
        self.t_ns = 0

    def block(self) -> tuple[Evidence, int]:
        X = self.rng.standard_normal((N, ROWS, WIDTH))
        X[:, :, OFFSET] = 1.0
        X[:, :, -1] = np.einsum("nkd,nd->nk", X[:, :, :-1], self.coefficients)
        X[:, :, -1] += self.noise[:, None] * self.rng.standard_normal((N, ROWS))
        self.t_ns += 500_000_000
        rows = np.where(self.moving, float(ROWS), 0.0)
        return Evidence((np.swapaxes(X, 1, 2) @ X) * self.moving[:, None, None], rows), self.t_ns


def watch(detector: ChangeDetector, arm: Arm, seconds: float) -> list[ArmChange]:
    return [change for _ in range(round(2.0 * seconds)) for change in detector.observe(*arm.block())]


def kinds(told: list[ArmChange]) -> list[str]:
    return [change.kind for change in told]


def test_nothing_is_watched_without_a_model_and_before_levels_are_learned() -> None:
    watched, arm = detector(), Arm()
    watched.set_model(False)
    assert watch(watched, arm, 100.0) == []
    assert watched.status == "off"
    watched.set_model(True)
    watch(watched, arm, 35.0)
    assert watched.status == "learning"
    watch(watched, arm, 10.0)
    assert watched.status == "watching"
    assert watch(watched, arm, 600.0) == []


def test_a_payload_comes_grows_and_goes() -> None:
    watched, arm = detector(), Arm()
    watch(watched, arm, 60.0)
    load = np.array([2.0, 0.1, -0.2, 0.3, 0.05, 0.0, 0.05, 0.0, 0.0, 0.02])
    arm.coefficients[:, :10] = load
    changed_s = arm.t_ns * 1e-9
    alarm, attached = watch(watched, arm, 3.0)
    assert (alarm.kind, attached.kind) == ("change", "payload_attached")
    assert changed_s - 0.1 < attached.data["since"] < changed_s + 1.1
    assert attached.data["payload"]["mass"]["value"] == pytest.approx(2.0, abs=0.1)
    assert watch(watched, arm, 60.0) == []
    found = watched.payload()
    assert found["mass"]["lower"] < 2.0 < found["mass"]["upper"]
    for figure, value in zip(found["centre_of_mass"], load[1:4] / load[0], strict=True):
        assert abs(figure["value"] - value) < 4.0 * figure["std"]
    assert watched.invalid_reason != ""
    arm.coefficients[:, :10] *= 1.5
    told = watch(watched, arm, 20.0)
    assert kinds(told) == ["change", "payload_attached"]
    assert told[1].data["change"] == pytest.approx(1.0, abs=0.1)
    assert told[1].data["payload"]["mass"]["value"] == pytest.approx(3.0, abs=0.1)
    arm.coefficients[:, 1:4] += 0.5  # it slips in the gripper
    assert kinds(watch(watched, arm, 20.0)) == ["change", "payload_moved"]
    arm.coefficients[:, :10] = load
    told = watch(watched, arm, 20.0)
    assert kinds(told) == ["change", "payload_released"]
    assert told[1].data["payload"]["mass"]["value"] == pytest.approx(2.0, abs=0.1)
    arm.coefficients[:] = 0.0
    told = watch(watched, arm, 20.0)
    assert kinds(told) == ["change", "payload_released"]
    assert told[1].data["payload"] is None
    assert watched.payload() is None
    assert watched.invalid_reason == ""
    assert watch(watched, arm, 60.0) == []


def test_the_other_joints_do_not_matter_for_friction() -> None:
    watched, arm = detector(), Arm()
    watch(watched, arm, 60.0)
    arm.coefficients[0, FRICTION] = 0.3
    early = watch(watched, arm, 11.0)
    told = early + watch(watched, arm, 9.0)
    assert (kinds(early), kinds(told)) == (["change"], ["change", "friction_changed"])
    assert told[1].data["joints"] == ["joint_1"]
    moved = {p["name"]: p for p in told[1].data["parameters"]}
    assert moved.keys() == {"fv1", "fc1"}
    assert abs(moved["fc1"]["change"] - 0.3) < 5.0 * moved["fc1"]["std"]
    assert abs(moved["fv1"]["change"]) < 5.0 * moved["fv1"]["std"]
    assert watched.invalid_reason == ""
    assert watch(watched, arm, 100.0) == []  # it is usual from now on
    arm.coefficients[:, 10:12] += 2.0 * arm.noise[:, None]
    told = watch(watched, arm, 20.0)
    assert kinds(told) == ["change", "friction_changed"]
    assert told[1].data["joints"] == list(JOINTS)


def test_a_sensor_fails_and_recovers() -> None:
    watched, arm = detector(), Arm()
    watch(watched, arm, 60.0)
    arm.coefficients[1, GAIN] = -1.0  # as if its cable were off
    early, told = watch(watched, arm, 11.0), watch(watched, arm, 9.0)
    assert kinds(early) == ["change"]  # the cause may be one that no hypothesis describes
    assert kinds(told) == ["sensor_fault"]
    told = early + told
    assert (told[1].data["cause"], told[1].data["joints"]) == ("sensor_gain", ["joint_2"])
    assert told[1].data["change"] == pytest.approx(-1.0, abs=0.2)
    assert watched.report()["sensor_faults"] == ["joint_2"]
    assert "joint_2" in watched.invalid_reason
    watch(watched, arm, 50.0)
    arm.coefficients[1, GAIN] = 0.0
    assert kinds(watch(watched, arm, 20.0)) == ["change", "sensor_recovered"]
    assert watched.invalid_reason == ""


def test_what_nothing_explains_is_ambiguous() -> None:
    watched, arm = detector(), Arm()
    watch(watched, arm, 60.0)
    arm.noise[0] *= 4.0
    told = watch(watched, arm, 30.0)
    assert kinds(told) == ["change", "ambiguous"]
    assert all(candidate["explained"] < 0.5 for candidate in told[1].data["candidates"])
    assert watch(watched, arm, 100.0) == []


@pytest.mark.parametrize(
    ("what", "broken", "said"),
    [
        ("released", "", "none were attached"), ("heavy", "", "would carry 9"), ("turned", "", "would be negative"),
        ("more", "", "leaves much more"), ("payload", "joint_1 is late", "joint_1 is late"),
    ],
)  # fmt: skip
def test_a_cause_that_cannot_be_or_leaves_much_is_not_named(what: str, broken: str, said: str) -> None:
    watched, arm = detector(capacity_kg=5.0), Arm()
    watched.set_model(True, None, np.full(len(NAMES), 0.5))
    watch(watched, arm, 60.0)
    if what == "turned":
        arm.coefficients[1, 10:12] = -8.0  # both terms of the friction of a joint
    elif what == "more":
        arm.coefficients[:, :10] = 1.0
        arm.noise[2] *= 10.0  # and something else, which is little beside it
    else:
        arm.coefficients[:, 0] = {"released": -2.0, "heavy": 9.0, "payload": 2.0}[what]
    told = [c for _ in range(60) for c in watched.observe(*arm.block(), broken)]
    assert kinds(told)[:2] == ["change", "ambiguous"]
    assert said in told[1].text
    assert watched.payload() is None


def test_a_joint_that_rests_is_not_asked() -> None:
    watched, arm = detector(), Arm()
    arm.moving[2] = False
    watch(watched, arm, 60.0)
    arm.moving[2] = True
    arm.coefficients[2, GAIN] = 0.5
    assert watch(watched, arm, 20.0) == []  # what is usual for it is not known yet
    arm.moving[:] = False
    arm.coefficients[:, :10] = 1.0
    assert watch(watched, arm, 100.0) == []


def test_the_watch_goes_on_after_a_restart() -> None:
    one, arm = detector(), Arm()
    watch(one, arm, 60.0)
    arm.coefficients[:, 0] = 3.0
    watch(one, arm, 30.0)
    other = ChangeDetector(Watched(NAMES, JOINTS, LAYOUT), 0.01, 10.0)  # type: ignore[arg-type]
    assert other.status == "off"
    other.restore(one.state())
    assert (other.payload(), other.status, other.invalid_reason) == (one.payload(), one.status, one.invalid_reason)
    arm.coefficients[:, 0] = 0.0
    assert kinds(watch(other, arm, 20.0)) == ["change", "payload_released"]
    before = other.state()
    with pytest.raises(ValueError, match="lacks"):
        other.restore({})
    with pytest.raises(ValueError, match="another size"):
        other.restore({**one.state(), "levels": np.zeros((3, 2))})
    with pytest.raises(ValueError, match="no numbers"):
        other.restore({**one.state(), "baseline": np.full((N, WIDTH - 1), np.nan)})
    for name, value in other.state().items():
        np.testing.assert_array_equal(value, before[name])
    other.set_model(False)
    assert (other.status, other.payload(), other.invalid_reason) == ("off", None, "")
