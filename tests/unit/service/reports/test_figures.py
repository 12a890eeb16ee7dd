"""Figures: a picture whatever the data, and the figures that they state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from rt_core.identification.friction_curve import FrictionCurve
from rt_core.identification.rows import Rows
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.reports.figures import (
    friction_figure,
    histogram_figure,
    history_figure,
    residual_figure,
    spectrum_figure,
    torque_figure,
)
from service.reports.figures._residual import noise_floor, share_beyond
from service.reports.figures.panels import MAX_POINTS, thin
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


@pytest.mark.parametrize("draw", RESIDUALS)
def test_nothing_left_over_and_nothing_used(draw: Residual) -> None:
    rows, _ = some_rows(2, 400)
    picture(draw(some_model(("a", "b")), rows, rows.tau))
    empty = replace(rows, use=np.zeros_like(rows.use))
    picture(draw(some_model(("a", "b")), empty, rows.tau))
    constant = replace(rows, tau=np.ones_like(rows.tau), use=np.ones_like(rows.use))
    picture(draw(some_model(("a", "b")), constant, np.zeros_like(rows.tau)))


def test_tick_labels_of_logarithmic_axes_are_plain(drawn: list[Figure]) -> None:
    rows, predicted = some_rows(2, 3000)
    rows = replace(rows, use=np.ones_like(rows.use))
    spectrum_figure(some_model(("a", "b")), rows, predicted)
    history_figure([np.geomspace(100.0, 1.0, 50)])
    for figure in drawn:
        labels = [label.get_text() for axis in figure.axes for label in axis.get_yticklabels() + axis.get_xticklabels()]
        assert any(labels)
        assert not any("$" in text for text in labels)


def test_the_edge_of_the_band_is_marked(drawn: list[Figure]) -> None:
    rows, predicted = some_rows(2, 3000)
    rows = replace(rows, use=np.ones_like(rows.use))
    spectrum_figure(some_model(("a", "b")), rows, predicted)
    for axis in drawn[0].axes:
        marked = [line for line in axis.lines if line.get_label() == "edge of the band"]
        assert [float(line.get_xdata()[0]) for line in marked] == [rows.band_hz]  # type: ignore[index, arg-type]


def test_no_panel_has_more_points_than_needed(drawn: list[Figure]) -> None:
    rows, predicted = some_rows(2, 9000)
    rows = replace(rows, use=np.ones_like(rows.use))
    residual_figure(some_model(("a", "b")), rows, predicted)
    velocity = np.linspace(-1.0, 1.0, 9000)
    line = np.array([-1.0, np.nan, 1.0])
    friction_figure(some_model(("a",)), [FrictionCurve(0, True, velocity, velocity, line, line, line - 1, line + 1)])
    for figure in drawn:
        for axis in figure.axes:
            assert max(len(line.get_xdata()) for line in axis.lines) == MAX_POINTS  # type: ignore[arg-type]
    assert drawn[1].axes[0].get_title() == "a, the others at rest"


def test_lines_break_between_pieces(drawn: list[Figure]) -> None:
    rows, predicted = some_rows(1, 60)
    rows = replace(rows, use=np.ones_like(rows.use))
    torque_figure(some_model(("a",)), rows, predicted)
    measured = np.asarray(drawn[0].axes[0].lines[0].get_ydata())
    assert measured.size == 61
    assert np.flatnonzero(np.isnan(measured)).tolist() == [31]
    np.testing.assert_array_equal(np.delete(measured, 31), rows.tau[:, 0])


def test_the_start_that_ends_lowest_stands_out(drawn: list[Figure]) -> None:
    history_figure([np.array([3.0, 2.0, 1.0]), np.array([np.inf, 2.0, 0.5]), np.array([4.0])])
    axis = drawn[0].axes[0]
    widths = [line.get_linewidth() for line in axis.lines]
    assert widths.index(max(widths)) == 1
    assert axis.get_yscale() == "log"
    picture(history_figure([np.zeros(3)]))
    picture(history_figure([np.array([np.inf])]))


def test_stated_figures() -> None:
    rng = np.random.default_rng(2)
    normal = rng.normal(size=200_000)
    assert share_beyond(normal + 5.0) == pytest.approx(0.0027, rel=0.15)
    normal[:2000] = 100.0
    assert share_beyond(normal) == pytest.approx(0.01)
    frequency = np.linspace(0.1, 25.0, 250)
    density = np.where(frequency < 3.0, 1e3, 2.0)
    assert noise_floor(frequency, density, 10.0) == 2.0
    assert np.isnan(noise_floor(frequency, density, 0.05))


def test_thinning() -> None:
    assert thin(0).size == 0
    assert thin(7).tolist() == list(range(7))
    chosen = thin(123_457)
    assert chosen.size == MAX_POINTS
    assert (chosen[0], chosen[-1]) == (0, 123_456)
    assert (np.diff(chosen) > 0).all()
