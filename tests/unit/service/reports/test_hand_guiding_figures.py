"""Figures of a guided arm: what they show is the record."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from service.operations.hand_guiding_replay import GuidingRecord
from service.reports.figures import guiding_figure, guiding_torque_figure
from tests.lab.hand_guiding.rig import Rig, exact, random_poses, robot


@pytest.fixture(scope="module")
def record() -> GuidingRecord:
    rig = Rig(robot(), exact(), start=random_poses(robot(), 1, seed=2)[0])
    traces = [rig.run(2.2)]
    rig.push([0.0, 0.0, 20.0])
    traces.append(rig.run(0.8))
    rig.controller.stop()
    traces.append(rig.run(1.2))
    names = ("t", "q", "dq", "tau", "residual", "margin")
    joined = [np.concatenate([getattr(x, name) for x in traces]) for name in names]
    states = [state for x in traces for state in x.states]
    return GuidingRecord(*joined, states, np.concatenate([x.force for x in traces]))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *args: object, **kwargs: object) -> None:
        kept.append(self)
        save(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


def test_motion_torque_and_force_over_time(record: GuidingRecord, drawn: list[Figure], tmp_path: Path) -> None:
    content = guiding_figure(robot(), record, "by hand")
    (tmp_path / "guiding.png").write_bytes(content)
    assert np.ptp(image.imread(BytesIO(content), format="png")[:, :, :3]) > 0.5
    position, velocity, torque, outside, force = drawn[0].axes
    for axis, values in ((position, record.q), (velocity, record.dq), (torque, record.tau), (outside, record.outside)):
        assert len(axis.lines) == 9
        assert axis.lines[4].get_ydata()[-1] == values[-1, 4]  # type: ignore[index]
    assert np.max(force.lines[2].get_ydata()) == 20.0  # type: ignore[arg-type]
    assert position.get_ylabel() == "position [rad]"
    assert len(position.patches) == 3  # taking over, stopping, hold


def test_torque_of_each_joint_with_its_margin(record: GuidingRecord, drawn: list[Figure]) -> None:
    guiding_torque_figure(robot(), record)
    axes = [axis for axis in drawn[0].axes if axis.get_visible()]
    assert [axis.get_title() for axis in axes] == [joint.name for joint in robot().joints]
    assert axes[3].lines[0].get_ydata()[0] == record.tau[0, 3]  # type: ignore[index]


def test_a_missing_force_is_stated(record: GuidingRecord, drawn: list[Figure]) -> None:
    guiding_figure(robot(), replace(record, force=None))
    assert [text.get_text() for text in drawn[0].axes[-1].texts] == ["the force was not measured"]
