"""Guiding a simulated arm by hand, frame by frame: takeover, hand, and how each reason brings it to a hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rt_core.hand_guiding import ZeroForceSettings
from rt_core.safety import PermitError, SafetyError
from service.config.hand_guiding import GuidingConfig
from service.models.hand_guiding_arrays import guiding_model, plain_model
from service.motion._hand_guiding import HandGuiding
from tests.lab.daemon.guiding_bench import PUSH, GuidingBench, model
from tests.lab.daemon.motion_bench import MODEL, PERIOD_S, START
from tests.lab.hand_guiding.rig import believed, with_payload


def test_the_table_has_the_settings_of_the_controller_with_their_defaults() -> None:
    table, settings = GuidingConfig(), ZeroForceSettings()
    assert set(GuidingConfig.model_fields) == {field.name for field in fields(ZeroForceSettings)}
    assert table.settings() == settings
    assert table.settings(friction_share=0.5).friction_share == 0.5
    for name in GuidingConfig.model_fields:
        with pytest.raises(ValidationError, match=name):
            GuidingConfig(**{name: -1.0})


def test_a_model_comes_back_from_its_lists() -> None:
    sent = model()
    back = guiding_model(MODEL, plain_model(sent))
    for name in ("arm", "rotor", "effects", "coordinates", "inertia"):
        assert np.array_equal(getattr(back, name), getattr(sent, name))
    for bad in (None, {}, plain_model(sent) | {"rotor": [[1.0]]}, plain_model(sent) | {"inertia": [np.nan] * MODEL.n}):
        with pytest.raises((ValueError, TypeError)):
            guiding_model(MODEL, bad)


def test_it_hovers_and_comes_back_to_the_hold_of_the_drives() -> None:
    bench = GuidingBench()
    bench.guide(for_s=3.0)
    bench.until("disarmed")
    assert (bench.session.outcome, bench.session.reason) == ("completed", "the 3 s are over")
    q = bench.channel("q")
    assert np.degrees(np.abs(q - START)).max() < 0.1
    assert {"csp", "cst"} == set(bench.modes)
    bench.held_softly()
    jerk = np.abs(np.diff(bench.channel("tau")[200:-200], axis=0)).max(axis=0)
    effort = np.array([joint.effort for joint in MODEL.joints])
    assert (jerk < 0.05 * effort).all()  # nothing jumps at either change of mode
    bench.turns(300)
    assert not bench.driver.enabled
    with pytest.raises(PermitError):
        bench.controller.check_permit(bench.token, bench.now)


def test_a_hand_moves_it_and_it_rests_when_let_go() -> None:
    bench = GuidingBench(PUSH)
    bench.guide(for_s=5.0)
    bench.until("disarmed")
    assert bench.session.outcome == "completed", bench.session.reason
    q, dq = bench.channel("q"), bench.channel("dq")
    assert np.abs(q[-1] - q[0]).max() > 0.1
    assert np.abs(dq).max() > 0.1
    resting = bench.modes.index("cst") + 4000
    assert np.abs(dq[resting : resting + 500]).max() < 1e-3
    bench.held_softly()


def test_nothing_begins_before_a_heartbeat() -> None:
    bench = GuidingBench()
    bench.beats = False
    bench.prepare()
    assert bench.session.outcome == "checked"
    with pytest.raises(PermitError, match="another run"):
        bench.controller.check_permit(bench.token, bench.now)
    bench.turns(1100)
    assert bench.session.outcome == "refused"
    assert bench.session.reason == "the client has not been heard of for 1 s after the answer"
    assert set(bench.modes) == {"csp"}
    assert bench.phase == "armed"
    bench.start(periods=1)  # the permit has not been used
    bench.beats = True
    bench.until("disarmed")
    assert bench.outcome == ("completed", "")


@pytest.mark.parametrize(
    ("bad", "words"), [(2, "samples before the first usable one were none"), (20, "no sample for 5 ms")]
)
def test_the_drives_hold_until_a_sample_can_be_used(bad: int, words: str) -> None:
    bench = GuidingBench()
    bench.prepare()
    bench.controller.heartbeat(bench.token, bench.now)
    for _ in range(bad):
        frame = bench.driver.read(0.0)
        frame.valid = np.zeros(MODEL.n, dtype=bool)
        bench.controller.step(frame, bench.driver, bench.now)
        assert bench.driver.mode == "csp"
    for _ in range(1000):
        if bench.session.outcome == "stopped":
            break
        bench.turn()
        assert bench.driver.mode == "csp"
    assert (bench.session.outcome, bench.session.reason) == ("stopped", words)


@pytest.mark.parametrize("mass", [4.0, 8.0])
def test_a_model_of_another_load_is_refused_while_the_drives_still_hold(mass: float) -> None:
    bench = GuidingBench()
    bench.prepare(by=believed(with_payload(MODEL, mass)))
    bench.until("disarmed")
    assert bench.session.outcome == "stopped"
    assert "model not valid" in bench.session.reason
    assert set(bench.modes) == {"csp"}
    assert np.abs(bench.channel("q") - START).max() < 1e-3
    bench.stays_off()


def test_a_permit_has_to_last_for_the_session() -> None:
    bench = GuidingBench()
    bench.arm(5.0)
    with pytest.raises(PermitError, match="arm for longer"):
        bench.guiding.prepare(bench.token, bench.now, bench.config.settings(), 60.0)
    assert not bench.controller.busy


def abort(bench: GuidingBench) -> None:
    bench.controller.stop("aborted by request", bench.driver)


def leave(bench: GuidingBench) -> None:
    bench.beats = False


REASONS: list[tuple[str, list[dict[str, Any]], dict[str, Any], Callable[[GuidingBench], None] | None, str]] = [
    ("abort", [], {}, abort, "aborted by request"),
    ("client gone", [], {}, leave, "the client has not been heard of for"),
    ("permit", [], {"for_s": 2.0}, None, "the permit has expired"),
    ("steady push", [PUSH | {"duration_s": 9.0}], {"guiding": {"residual_time_s": 0.4}}, None, "model not valid"),
    ("speed", [PUSH | {"force": (0.0, 60.0, 0.0)}], {"guiding": {"speed_share": 0.05}}, None, "moves at"),
    (
        "heat",
        [{"kind": "heat", "after_s": 0.8, "joint": "joint_3", "value": 90.0}],
        {},
        None,
        "joint_3: temperature 90",
    ),
]


@pytest.mark.parametrize(("faults", "settings", "act", "words"), [r[1:] for r in REASONS], ids=[r[0] for r in REASONS])
def test_every_reason_leads_to_a_hold_and_off(
    faults: list[dict[str, Any]],
    settings: dict[str, Any],
    act: Callable[[GuidingBench], None] | None,
    words: str,
) -> None:
    bench = GuidingBench(*faults, guiding=settings.get("guiding"))
    bench.token = "a"
    if "for_s" in settings:
        bench.arm(settings["for_s"])
        bench.guiding.prepare(bench.token, bench.now, bench.config.settings(), None)
        bench.guiding.set_model(model(), "m", bench.now)
        bench.until_phase("guiding")
    else:
        bench.guide()
    bench.turns(100)
    if act is not None:
        act(bench)
    bench.until("disarmed")
    assert bench.session.outcome == "stopped"
    assert words in bench.session.reason
    bench.held_softly()
    bench.stays_off()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "drive_fault", "joint": "joint_2"}, "no longer enabled (drive of joint_2 in state 'fault')"),
        ({"kind": "silence", "duration_s": 0.5}, "no frame for more than 0.1 s (no set value for 0.1 s)"),
        ({"kind": "encoder_jump", "joint": "joint_1", "value": 0.4}, "position jumps"),
    ],
)
def test_where_nothing_can_be_held_the_drives_stop_by_themselves(fault: dict[str, Any], words: str) -> None:
    bench = GuidingBench(fault | {"after_s": 0.8})
    bench.guide()
    bench.until("disarmed")
    assert bench.session.outcome == "stopped"
    assert words in bench.session.reason
    bench.turns(500)
    assert not bench.driver.enabled
    q = bench.channel("q")[-200:]
    assert np.abs(np.diff(q, axis=0)).max() < 1e-5


def test_one_late_frame_leads_to_a_hold() -> None:
    bench = GuidingBench()
    bench.guide()
    for _ in range(8):
        bench.driver.read(0.0)  # nobody takes them
    bench.until("disarmed")
    assert bench.session.reason == "no sample for 9 ms"
    bench.held_softly()


def test_settings_that_come_too_late_for_the_cycle_are_refused() -> None:
    bench = GuidingBench()
    limits, state = bench.controller.limits, bench.controller.state
    with pytest.raises(SafetyError, match="guiding: period_s must be positive and at most half of braking_time_s"):
        HandGuiding(MODEL, limits, state, GuidingConfig(), 4.0 * PERIOD_S)
    with pytest.raises(SafetyError, match="guiding: speed_limit has 2 values, arm7 has 7 joints"):
        HandGuiding(MODEL, limits, state, GuidingConfig(speed_limit=(1.0, 1.0)), PERIOD_S)
