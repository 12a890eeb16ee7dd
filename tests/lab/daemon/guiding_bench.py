"""Hand guiding of a simulated arm, frame by frame on a virtual clock."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rt_core.hand_guiding import GuidingModel
from rt_core.settings import ZeroForceSettings
from rt_core.types import FloatArray
from service.motion._hand_guiding import HandGuiding, Session
from tests.lab.daemon.motion_bench import MODEL, PERIOD_S, ROBOT, Bench
from tests.lab.hand_guiding.rig import exact

#: Of an arm without noise, whose torque may stay the same to the bit; and a quick takeover.
SETTINGS: Mapping[str, Any] = {"frozen_s": 1e3, "ramp_s": 0.2, "takeover_watch_s": 0.2}
PUSH = {"kind": "push", "after_s": 0.8, "duration_s": 0.6, "force": (12.0, 16.0, 0.0)}


def model() -> GuidingModel:
    """Return the true model of the arm."""
    return exact(ROBOT.model.name)


class GuidingBench(Bench):
    """An arm, its hand guiding, and a clock that advances with the frames."""

    def __init__(self, *faults: dict[str, Any], guiding: Mapping[str, Any] | None = None, **safety: Any) -> None:
        super().__init__(*faults, **safety)
        self.config = ZeroForceSettings(**SETTINGS | (guiding or {}))
        limits, state = self.controller.limits, self.controller.state
        self.guiding = HandGuiding(MODEL, limits, state, self.config, PERIOD_S)
        self.controller.guiding = self.guiding
        self.modes: list[str] = []

    @property
    def session(self) -> Session:
        return self.guiding.session

    def turn(self) -> None:
        if self.beats and (self.guiding.busy or self.guiding.moving):
            self.controller.heartbeat(self.token, self.now)
        super().turn()
        self.modes.append(self.driver.mode)

    def prepare(self, for_s: float | None = None, by: GuidingModel | None = None, **settings: Any) -> None:
        """Arm, unless it is, and prepare a session; the first heartbeat begins it."""
        if self.phase != "armed":
            self.arm()
        self.controller.check_permit(self.token, self.now)
        self.guiding.prepare(self.token, self.now, replace(self.config, **settings), for_s)
        self.guiding.set_model(model() if by is None else by, "m", self.now)

    def guide(self, for_s: float | None = None, by: GuidingModel | None = None, **settings: Any) -> None:
        """Guide until the arm may be pushed."""
        self.prepare(for_s, by, **settings)
        self.until_phase("guiding")

    def until_phase(self, *phases: str, cycles: int = 20_000) -> None:
        for _ in range(cycles):
            if self.guiding.phase in phases:
                return
            self.turn()
        pytest.fail(f"{self.guiding.phase}: {self.reason}")

    def channel(self, name: str) -> FloatArray:
        return np.array([getattr(frame, name) for frame in self.frames])

    def held_softly(self) -> None:
        """Check that after torque mode the drives held the arm's position and braked within the acceleration limits."""
        here = [k for k in range(1, len(self.modes)) if self.modes[k - 1] == "cst" and self.modes[k] == "csp"]
        assert here, "never back in csp"
        q, after = self.channel("q"), self.setpoints()[here[0] + 1 :]
        on = np.array([frame.status_word is not None and frame.status_word[0] == 0x0237 for frame in self.frames])
        after = after[on[here[0] + 1 :]]
        assert len(after) > 50
        np.testing.assert_allclose(after[0], q[here[0]], atol=2e-3)
        limit = self.controller.limits.acceleration
        assert (np.abs(np.diff(after, 2, axis=0)) / PERIOD_S**2 <= limit * (1.0 + 1e-5)).all()
        assert (after[-1] == after[-2]).all()
