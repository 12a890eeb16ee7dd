"""Figures of measured and predicted torque, and of the residual over velocity, by frequency and as a histogram."""

import numpy as np
from matplotlib.ticker import LogLocator

from rt_core.identification.rows import Rows
from rt_core.identification.spectrum import power_spectrum
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from service.reports.figures import panels as draw

_MAX_BINS = 61
_WIDEST = 6.0  # range of a histogram at most, in standard deviations
_BEYOND = 3.0
_NORMAL_BEYOND = 0.0027  # share of a normal distribution outside three standard deviations
_DECADES = 8.0  # range of a spectrum at most, below its highest point


def torque_figure(model: RobotModel, rows: Rows, predicted: FloatArray, title: str = "") -> bytes:
    """Draw measured and predicted torque and the residual over time, one panel per joint."""
    with draw.style():
        figure, axes = draw.grid(model.n, 1, (10.0, 1.0 + 1.5 * model.n), left=1.0, gap=0.15, sharex=True)
        axes = axes[:, 0]
        new_piece = np.flatnonzero(np.diff(rows.piece)) + 1
        t = np.insert(rows.t, new_piece, rows.t[new_piece])
        for j, axis in enumerate(axes):
            # an unused row and a gap break the line
            measured = np.where(rows.use[:, j], rows.tau[:, j], np.nan)
            fitted = np.where(rows.use[:, j], predicted[:, j], np.nan)
            measured, fitted = (np.insert(x, new_piece, np.nan) for x in (measured, fitted))
            axis.plot(t, measured, color=draw.MEASURED, lw=1.8, label="measured")
            axis.plot(t, fitted, color=draw.PREDICTED, lw=0.9, ls="--", label="predicted")
            axis.plot(t, measured - fitted, color=draw.RESIDUAL, lw=0.7, label="residual")
            axis.axhline(0.0, color=draw.AXIS, lw=0.4)
            axis.set_ylabel(f"{model.joints[j].name}\n[{draw.torque_unit(model, j)}]")
        draw.legend(figure, axes[0])
        if title:
            axes[0].set_title(title, loc="left")
        axes[-1].set_xlabel("time [s]")
        return draw.png(figure)


def residual_figure(model: RobotModel, rows: Rows, predicted: FloatArray) -> bytes:
    """Draw the residual over velocity, which shows friction that the law does not describe."""
    with draw.style():
        figure, axes = draw.joint_panels(model, range(model.n))
        for j, axis in enumerate(axes):
            use = np.flatnonzero(rows.use[:, j])
            if use.size == 0:
                draw.nothing(axis, "no rows in use")
            shown = use[draw.thin(use.size)]
            axis.plot(
                rows.dq[shown, j], (rows.tau - predicted)[shown, j], ".", ms=2.0, color=draw.RESIDUAL, rasterized=True
            )
            axis.axhline(0.0, color=draw.AXIS, lw=0.6)
            axis.set(
                xlabel=f"velocity [{draw.speed_unit(model, j)}]", ylabel=f"residual [{draw.torque_unit(model, j)}]"
            )
        return draw.png(figure)


def noise_floor(frequency: FloatArray, density: FloatArray, band_hz: float) -> float:
    """Return the median density in the upper half of the band, which motion seldom reaches; NaN without points."""
    upper = (frequency >= 0.5 * band_hz) & (frequency <= band_hz)
    return float(np.median(density[upper])) if upper.any() else float("nan")


def spectrum_figure(model: RobotModel, rows: Rows, predicted: FloatArray) -> bytes:
    """Draw the power spectral density of torque and residual, with the residual's floor and the edge of the band."""
    with draw.style():
        figure, axes = draw.joint_panels(model, range(model.n))
        for j, axis in enumerate(axes):
            torque, residual = (
                power_spectrum(x, rows.use[:, j], rows.piece, rows.rate_hz)
                for x in (rows.tau[:, j], (rows.tau - predicted)[:, j])
            )
            if residual[0].size == 0 or not (residual[1] > 0.0).any():
                draw.nothing(axis, "no spectrum: nothing is left over" if residual[0].size else "too few rows in a row")
                continue
            floor = noise_floor(*residual, rows.band_hz)
            axis.loglog(*torque, color=draw.MEASURED, lw=0.8, label="torque")
            axis.loglog(*residual, color=draw.RESIDUAL, lw=1.0, label="residual")
            if floor > 0.0:
                axis.axhline(floor, color=draw.PREDICTED, lw=0.9, ls=":", label="floor of the residual")
            axis.axvline(rows.band_hz, color=draw.MARK, lw=0.9, ls="--", label="edge of the band")
            top = max(float(torque[1].max()), float(residual[1].max()))
            axis.set_ylim(max(float(residual[1][residual[1] > 0.0].min()), top * 10.0**-_DECADES), 2.0 * top)
            axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            draw.plain_ticks(axis.xaxis)
            draw.plain_ticks(axis.yaxis)
            axis.set(xlabel="frequency [Hz]", ylabel=f"density [({draw.torque_unit(model, j)})²/Hz]")
        labelled = [axis for axis in axes if axis.get_legend_handles_labels()[0]]
        if labelled:
            draw.legend(figure, labelled[0], 4)
        return draw.png(figure)


def share_beyond(residual: FloatArray) -> float:
    """Return the share of `residual` (K,) further than three standard deviations from its mean."""
    spread = np.abs(residual - residual.mean())
    return float(np.mean(spread > _BEYOND * residual.std()))


def histogram_figure(model: RobotModel, rows: Rows, predicted: FloatArray) -> bytes:
    """Draw a histogram of the residual, with the normal curve of the same mean and standard deviation."""
    with draw.style():
        figure, axes = draw.joint_panels(model, range(model.n))
        for j, axis in enumerate(axes):
            residual = (rows.tau - predicted)[rows.use[:, j], j]
            mean, std = (float(residual.mean()), float(residual.std())) if residual.size else (0.0, 0.0)
            if not std > 0.0:
                draw.nothing(axis, "the residual is constant" if residual.size else "no rows in use")
                continue
            reach = min(max(float(np.abs(residual - mean).max()) / std, _BEYOND), _WIDEST)
            bins = min(int(2.0 * np.sqrt(residual.size)) | 1, _MAX_BINS)
            edges = mean + std * np.linspace(-reach, reach, bins + 1)
            # values outside count in the outermost bars
            counted = np.clip(residual, edges[0], edges[-1])
            axis.stairs(*np.histogram(counted, edges, density=True), fill=True, color=draw.RESIDUAL, alpha=0.75)
            x = np.linspace(edges[0], edges[-1], 200)
            normal = np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))
            axis.plot(x, normal, color=draw.MEASURED, lw=1.0)
            for side in (-_BEYOND, _BEYOND):
                axis.axvline(mean + side * std, color=draw.PREDICTED, lw=0.8, ls=":")
            text = f"beyond 3σ: {100.0 * share_beyond(residual):.2g} %\n(normal: {100.0 * _NORMAL_BEYOND:.2g} %)"
            axis.text(0.98, 0.95, text, transform=axis.transAxes, ha="right", va="top")
            axis.set(xlabel=f"residual [{draw.torque_unit(model, j)}]", ylabel="density")
            axis.set_yticks([])
        return draw.png(figure)
