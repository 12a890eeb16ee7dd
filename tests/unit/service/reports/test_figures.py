"""Figures: a picture whatever the data, and the figures that they state."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from drivers.files.robots.file import load_robot
from rt_core.hand_guiding import GuidingState
from rt_core.identification.rows import Rows
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.operations.hand_guiding_replay import GuidingRecord
from service.reports.figures import (
    guiding_figure,
    guiding_torque_figure,
    histogram_figure,
    history_figure,
    residual_figure,
    spectrum_figure,
    torque_figure,
)
from service.reports.figures._residual import noise_floor, share_beyond
from tests.lab.recordings.some_rows import some_model, some_rows

HOSTILE = ("$x_{$", "\\alpha $", "日本")
Residual = Callable[[RobotModel, Rows, FloatArray], bytes]
RESIDUALS: tuple[Residual, ...] = (torque_figure, residual_figure, spectrum_figure, histogram_figure)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures drawn during the test, in order."""
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *args: object, **kwargs: object) -> None:
        kept.append(self)
        save(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


def picture(content: bytes) -> np.ndarray:
    """Pixels of a PNG file; it must show something."""
    pixels = np.asarray(image.imread(BytesIO(content), format="png"))
    assert pixels.shape[0] > 100
    assert pixels.shape[1] > 400
    assert np.ptp(pixels[:, :, :3]) > 0.5
    return pixels


@pytest.mark.parametrize("draw", RESIDUALS)
def test_names_are_text_and_a_joint_may_be_empty(draw: Residual) -> None:
    rows, predicted = some_rows(3, 400)
    content = draw(some_model(HOSTILE), rows, predicted)
    picture(content)
    assert draw(some_model(HOSTILE), rows, predicted) == content
    model, empty = some_model(HOSTILE), replace(rows, use=np.zeros_like(rows.use))
    picture(draw(model, rows, rows.tau))
    picture(draw(model, empty, rows.tau))
    constant = replace(rows, tau=np.ones_like(rows.tau), use=np.ones_like(rows.use))
    picture(draw(model, constant, np.zeros_like(rows.tau)))


def test_tick_labels_of_logarithmic_axes_are_plain_and_the_edge_of_the_band_is_marked(drawn: list[Figure]) -> None:
    rows, predicted = some_rows(2, 3000)
    spectrum_figure(some_model(("a", "b")), replace(rows, use=np.ones_like(rows.use)), predicted)
    history_figure([np.geomspace(100.0, 1.0, 50)])
    for figure in drawn:
        labels = [label.get_text() for axis in figure.axes for label in axis.get_yticklabels() + axis.get_xticklabels()]
        assert any(labels)
        assert not any("$" in text for text in labels)
    for axis in drawn[0].axes:
        marked = [line for line in axis.lines if line.get_label() == "edge of the band"]
        assert [float(line.get_xdata()[0]) for line in marked] == [rows.band_hz]  # type: ignore[index, arg-type]


def test_lines_break_between_pieces(drawn: list[Figure]) -> None:
    rows, predicted = some_rows(1, 60)
    rows = replace(rows, use=np.ones_like(rows.use))
    torque_figure(some_model(("a",)), rows, predicted)
    measured = np.asarray(drawn[0].axes[0].lines[0].get_ydata())
    assert measured.size == 61
    assert np.flatnonzero(np.isnan(measured)).tolist() == [31]
    np.testing.assert_array_equal(np.delete(measured, 31), rows.tau[:, 0])


def test_stated_figures() -> None:
    normal = np.random.default_rng(2).normal(size=200_000)
    assert share_beyond(normal + 5.0) == pytest.approx(0.0027, rel=0.15)
    normal[:2000] = 100.0
    assert share_beyond(normal) == pytest.approx(0.01)
    frequency = np.linspace(0.1, 25.0, 250)
    density = np.where(frequency < 3.0, 1e3, 2.0)
    assert noise_floor(frequency, density, 10.0) == 2.0
    assert np.isnan(noise_floor(frequency, density, 0.05))


def test_motion_torque_and_force_of_a_guided_arm(drawn: list[Figure]) -> None:
    t, model = np.arange(400) * 0.01, load_robot("arm9").model
    q, dq, tau, outside, margin = np.random.default_rng(1).uniform(0.1, 1.0, (5, 400, 9))
    force = np.outer(np.sin(t) > 0.5, [0.0, 0.0, 20.0])
    states = [GuidingState(name) for name in ("ramping", "guiding", "ramping", "hold_requested") for _ in range(100)]
    record = GuidingRecord(t, q, dq, tau, outside, margin, states, force)
    picture(guiding_figure(model, record, "by hand"))
    position, *others, of_force = drawn[0].axes
    for axis, values in zip((position, *others), (q, dq, tau, outside), strict=True):
        assert len(axis.lines) == 9
        assert axis.lines[4].get_ydata()[-1] == values[-1, 4]  # type: ignore[index]
    assert np.max(of_force.lines[2].get_ydata()) == 20.0  # type: ignore[arg-type]
    assert len(position.patches) == 3  # taking over, stopping, hold
    guiding_figure(model, replace(record, force=None))
    assert [text.get_text() for text in drawn[1].axes[-1].texts] == ["the force was not measured"]
    guiding_torque_figure(model, record)
    axes = [axis for axis in drawn[2].axes if axis.get_visible()]
    assert [axis.get_title() for axis in axes] == [joint.name for joint in model.joints]
    assert axes[3].lines[0].get_ydata()[0] == tau[0, 3]  # type: ignore[index]
