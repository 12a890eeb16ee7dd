"""Torque of a whole arm whose joints may be elastic, from the motions of motors and links.

The motors' torque is that of the rigid links at the links' motion, and of rotors and motor friction at the motors':

    tau = Y_link(q, dq, ddq) phi_link + Ia*ddx + friction(x, dx) + offset

with `x` the motors' positions on the joint side.  The springs do not appear: they are between the two motions.  For
`x = q` this is the rigid model, in which some rotor inertias are combined with those of their links.  Here each rotor
inertia is a column of its own, undetermined where the motions hardly differ.

Friction on the link side is nearly proportional to that of the motors and counts with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.interpolate import CubicSpline

from rt_core.identification.least_squares import Solution, compress, solve
from rt_core.identification.model_comparison import PairedComparison, compare_residuals
from rt_core.identification.preprocess import DataError, SignalPiece, Signals, SignalSettings
from rt_core.identification.rows import Rows, build_rows, standing_velocity
from rt_core.identification.status import ParameterStatus, parameter_status
from rt_core.identification.uncertainty import Uncertainty, estimate_covariance
from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.friction import LAW_ARMATURE
from rt_core.model.parameters import standard_layout
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from rt_core.validation import Metrics, torque_metrics

Motions = Literal["link", "motor", "both"]
#: Share of the rows, at the end, that are held out for the comparison of the models.
HELD_OUT = 0.4
#: Gap between the two parts, in periods of the cut-off frequency: the reach of the filters.
_BETWEEN_PERIODS = 10.0


@dataclass(frozen=True)
class ArmFit:
    """One model of the torque, fitted by weighted least squares."""

    motions: Motions  # of the columns ("link", "motor", "both"): all of the links', all of the motors', or each its own
    base: BaseParameters
    rows: Rows
    solution: Solution
    uncertainty: Uncertainty
    std: FloatArray  # (p,) standard deviations, infinite for undetermined parameters
    status: tuple[ParameterStatus, ...]
    metrics: Metrics  # torque error on the rows that were fitted


@dataclass(frozen=True)
class Comparison:
    """Comparison of elastic and rigid joints on held-out data.

    `against` holds the comparison with the rigid model of either encoder, since a finer encoder is no elasticity.
    `elastic` is whether the elastic model is better than both.
    """

    elastic: bool
    against: Mapping[Motions, PairedComparison]
    held_out_s: float

    @property
    def reason(self) -> str:
        """The decisive comparison, in one sentence."""
        failed = [(motions, paired) for motions, paired in self.against.items() if not paired.better]
        motions, paired = (failed or list(self.against.items()))[0]
        where = f"({motions} encoder), on {self.held_out_s:.0f} s held out"
        return f"elastic joints beside rigid ones {where}: {paired.reason}"


def elastic_base(model: RobotModel) -> BaseParameters:
    """Return base parameters of an arm whose motors and links move independently: each rotor inertia is one of them.

    Raises `DataError` if a motor also turns with another joint, or friction depends on the load.
    """
    if not np.array_equal(model.coupling, np.eye(model.n)):
        raise DataError(
            f"robot {model.name} has motors that also turn with other joints: elastic joints cannot be identified there"
        )
    if model.friction.load:
        raise DataError(
            f"friction of robot {model.name} depends on the load: elastic joints cannot be identified with it; set "
            "friction_load = false in [model]"
        )
    links = base_parameters(replace(model, armature=False))
    if not model.armature:
        return links
    whole = standard_layout(model)
    rotors = np.flatnonzero(whole.law == LAW_ARMATURE)
    column = {name: c for c, name in enumerate(whole.names)}
    independent = np.array(sorted([column[name] for name in links.names] + rotors.tolist()), dtype=np.int64)
    mapping = np.zeros((independent.size, len(whole)))
    place = {int(c): k for k, c in enumerate(independent)}
    every = [column[name] for name in links.standard.names]
    for k, name in enumerate(links.names):
        mapping[place[column[name]], every] = links.mapping[k]
    for c in rotors:
        mapping[place[int(c)], c] = 1.0
    return BaseParameters(whole, independent, mapping, links.smallest_kept, links.largest_dropped)


def sides(both: Signals, n: int) -> tuple[Signals, Signals]:
    """Split signals (N, 2n) that were prepared together into those of links and motors."""

    def half(piece: SignalPiece, part: slice) -> SignalPiece:
        warm = None if piece.temperature is None else piece.temperature[:, part]
        return replace(
            piece, q=piece.q[:, part], dq=piece.dq[:, part], ddq=piece.ddq[:, part], tau=piece.tau[:, part],
            temperature=warm,
        )  # fmt: skip

    links, motors = (
        replace(both, pieces=tuple(half(piece, part) for piece in both.pieces))
        for part in (slice(0, n), slice(n, 2 * n))
    )
    return links, motors


def in_step(links: Signals, measured: Signals) -> Signals:
    """Return the motion of `measured` at the times of `links`, with their torque.

    Both are of one recording, `measured` with the measured velocity.  With it fewer samples count as repeated, so its
    stretches may be longer, but each stretch of `links` lies within one.
    """

    def at(piece: SignalPiece) -> SignalPiece:
        middle = 0.5 * (piece.t[0] + piece.t[-1])
        longer = next(one for one in measured.pieces if one.t[0] <= middle <= one.t[-1])
        q, dq, ddq = longer.q, longer.dq, longer.ddq
        if not np.array_equal(longer.t, piece.t):
            q, dq, ddq = (np.asarray(CubicSpline(longer.t, x)(piece.t)) for x in (q, dq, ddq))
        return replace(piece, q=q, dq=dq, ddq=ddq)

    return replace(links, pieces=tuple(map(at, links.pieces)), measured_velocity=True)


class ArmRows:
    """Rows of one recording for each choice of motions, all on the same samples.

    Parameters
    ----------
    model : RobotModel
    links, motors : Signals
        From `sides`; rows in the part of `links` are used.
    settings : SignalSettings
    measured : Signals or None
        Of the links, with the measured velocity, at the times of `links`: the motion of the rigid model.
    slow : bool
        As of `build_rows`.

    Raises
    ------
    DataError
        As `elastic_base`, or if there are no rows.
    """

    def __init__(
        self, model: RobotModel, links: Signals, motors: Signals, settings: SignalSettings,
        measured: Signals | None = None, *, slow: bool = True,
    ) -> None:  # fmt: skip
        start_s, stop_s = links.part
        self.model, self.settings = model, settings
        self.bases: dict[Motions, BaseParameters] = {"both": elastic_base(model)}
        self.bases["link"] = self.bases["motor"] = base_parameters(model)
        rigid = links if measured is None else measured
        limit = standing_velocity(model, settings, slow=slow)
        links, motors, rigid = _standing_together(links, motors, rigid, limit)

        def built(base: BaseParameters, signals: Signals) -> Rows:
            return build_rows(model, base, signals, settings, slow=slow).select(start_s, stop_s)

        rows: dict[Motions, Rows] = {
            "link": built(self.bases["link"], rigid),
            "motor": built(self.bases["motor"], motors),
        }
        if rows["link"].t.size == 0:
            raise DataError(f"no rows between {start_s:g} s and {stop_s:g} s: the span lies outside the recording")
        of_link, of_motor = (built(self.bases["both"], signals) for signals in (links, motors))
        # rows of "link" may have another velocity; a joint's rows that are not in use are zero
        use = rows["link"].use & rows["motor"].use & of_link.use & of_motor.use
        is_link = self.bases["both"].layout.is_link[None, :, None]
        rows["both"] = replace(of_link, Y=np.where(is_link, of_link.Y, of_motor.Y))
        #: Rows for each choice of motions, with the same torque and rows in use.
        self.rows: dict[Motions, Rows] = {
            motions: replace(
                r, Y=np.where(use.T[:, None, :], r.Y, 0.0), tau=np.where(use, r.tau, 0.0), use=use
            )
            for motions, r in rows.items()
        }  # fmt: skip

    def fit(self, motions: Motions, start_s: float = -np.inf, stop_s: float = np.inf) -> ArmFit:
        """Fit the model with these motions to the rows with `start_s <= t < stop_s`.

        Raises `DataError` if there are too few rows.
        """
        base, rows = self.bases[motions], self.rows[motions].select(start_s, stop_s)
        try:
            solution = solve(compress(rows.Y, rows.tau, rows.use), len(base), "wls")
        except ValueError as error:
            raise DataError(str(error)) from error
        uncertainty = estimate_covariance(rows, solution)
        std = np.where(solution.supported, uncertainty.std, np.inf)
        metrics = torque_metrics(rows.tau, rows.predict(solution.theta), rows.use)
        return ArmFit(motions, base, rows, solution, uncertainty, std, parameter_status(rows, solution, std), metrics)

    def compare(self) -> Comparison:
        """Fit each model to the first rows and compare their predictions of the others.

        Raises `DataError` if there are too few rows.
        """
        t = self.rows["link"].t
        cut = float(t[int((1.0 - HELD_OUT) * t.size)])  # a share of rows, since recordings may have time between them
        after = cut + _BETWEEN_PERIODS / self.settings.cutoff_hz
        residuals: dict[Motions, FloatArray] = {}
        for motions, rows in self.rows.items():
            found, unseen = self.fit(motions, stop_s=cut), rows.select(after, np.inf)
            residuals[motions] = unseen.tau - unseen.predict(found.solution.theta)
        test = self.rows["link"].select(after, np.inf)
        rigid: tuple[Motions, ...] = ("link", "motor")
        against = {m: compare_residuals(test.t, residuals["both"], residuals[m], test.use) for m in rigid}
        return Comparison(all(p.better for p in against.values()), against, test.t.size / test.rate_hz)


def _standing_together(
    links: Signals, motors: Signals, measured: Signals, limit: FloatArray
) -> tuple[Signals, Signals, Signals]:
    """Set all motions of a joint to standstill wherever one of them is, so that all leave out the same samples."""
    pieces: tuple[list[SignalPiece], ...] = ([], [], [])
    for together in zip(links.pieces, motors.pieces, measured.pieces, strict=True):
        still = np.any([np.abs(piece.dq) < limit for piece in together], axis=0)
        for into, piece in zip(pieces, together, strict=True):
            into.append(replace(piece, dq=np.where(still, 0.0, piece.dq)))
    links, motors, measured = (
        replace(signals, pieces=tuple(of)) for signals, of in zip((links, motors, measured), pieces, strict=True)
    )
    return links, motors, measured
