"""Base-parameter reduction and fit beside figaroh's, on the same 60,000 rows, one BLAS thread each.

Both start from the regressor of all 84 standard parameters at the same 10,000 states of a 6-joint arm, and from the
torque; both end with base parameters, their expressions in standard parameters, and their least-squares values.
Building that regressor is in neither time; it is measured apart.

- figaroh: zero columns dropped, `QRDecomposer.double_decomposition` (its default), which also solves.
- Own: `base_parameters` with expressions, its columns taken out, `compress`, `solve` by OLS.  The reduction stacks the
  regressor over random states of its own: that time is included.
"""

import time
from typing import Any

import numpy as np

from benchmarks.figaroh_accuracy import RATE_HZ, ROBOT, SAMPLES, simulate
from benchmarks.figaroh_peer import FigarohPeer, Recipe
from drivers.files.robots.file import load_robot
from rt_core.identification.least_squares import compress, solve
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_layout
from rt_core.model.regressor import regressor

TARGET = 10.0
ROUNDS = 7


def beside_figaroh(rounds: int = ROUNDS) -> dict[str, Any]:
    """Medians over alternating rounds of reduction and fit, and of building the regressor."""
    from figaroh.tools.qrdecomposition import QRDecomposer
    from figaroh.tools.regressor import build_regressor_basic, build_regressor_reduced, get_index_eliminate

    model = load_robot(ROBOT).model
    truth = simulate(model, 0, 0.1)
    rng = np.random.default_rng(0)
    tau = truth.tau + 0.01 * np.sqrt(np.mean(truth.tau**2, axis=0)) * rng.standard_normal(truth.tau.shape)
    states = truth.q, truth.dq, truth.ddq
    layout = standard_layout(model)
    everywhere = np.ones(tau.shape, dtype=bool)
    times: dict[str, list[float]] = {name: [] for name in ("own", "figaroh", "own_regressor", "figaroh_regressor")}
    with FigarohPeer(model) as peer:
        run = peer.identification(Recipe(decimate=False, wls=False), truth.t, truth.q, tau, truth.dq, truth.ddq)
        standard = run.standard_parameter

        def theirs() -> tuple[np.ndarray, int]:
            dropped, names = get_index_eliminate(W, standard, tol_e=1e-3)
            reduced = build_regressor_reduced(W, dropped)
            base_regressor, _, _, phi, _ = QRDecomposer(tolerance=1e-6).double_decomposition(
                stacked, reduced, names, standard
            )
            return base_regressor @ phi, phi.size

        def ours() -> tuple[np.ndarray, int]:
            base = base_parameters(model)
            assert len(base.expressions) == len(base)
            columns = Y[:, base.independent]
            solution = solve(compress(columns, tau, everywhere), len(base), "ols")
            return np.einsum("npk,p->nk", columns, solution.theta).ravel(), len(base)

        for k in range(rounds + 1):  # the first round compiles and warms up
            marks = [time.perf_counter()]
            W = build_regressor_basic(run.robot, *states, run.identif_config)
            marks.append(time.perf_counter())
            Y = np.ascontiguousarray(regressor(model, layout, *states).transpose(1, 2, 0))
            marks.append(time.perf_counter())
            stacked = tau.T.ravel()
            their_torque, their_rank = theirs()
            marks.append(time.perf_counter())
            our_torque, our_rank = ours()
            marks.append(time.perf_counter())
            if k == 0:
                assert their_rank == our_rank
                assert np.allclose(their_torque, our_torque, atol=1e-6 * np.abs(our_torque).max())
                continue
            for name, span in zip(
                ("figaroh_regressor", "own_regressor", "figaroh", "own"), np.diff(marks), strict=True
            ):
                times[name].append(float(span))
    medians = {name: float(np.median(values)) for name, values in times.items()}
    return {
        "robot": ROBOT,
        "rows": SAMPLES * model.n,
        "rate_hz": RATE_HZ,
        "base_parameters": our_rank,
        **{f"{name}_ms": 1e3 * value for name, value in medians.items()},
        "ratio": medians["figaroh"] / medians["own"],
        "regressor_ratio": medians["figaroh_regressor"] / medians["own_regressor"],
        "target": TARGET,
    }
