"""Error of a predicted torque against a measured one, joint by joint."""

from dataclasses import dataclass

import numpy as np

from rt_core.types import BoolArray, FloatArray


@dataclass(frozen=True)
class Metrics:
    """Torque error over the rows in use."""

    relative_error: float  # 2-norm of the error over that of the torque, all joints stacked
    # rmse, mae, maximum: (n,) per joint [N*m or N]
    rmse: FloatArray
    mae: FloatArray
    maximum: FloatArray
    R: FloatArray  # (n,) correlation of measured and predicted torque; NaN where one of them is constant
    # (n,) share of the torque's variance that the prediction explains (1 - mean squared error over the torque's
    # variance about its mean); negative where the mean alone predicts better
    explained: FloatArray
    count: FloatArray  # (n,) rows in use

    def as_dict(self) -> dict[str, float | list[float | None]]:
        """Return numbers for JSON; NaN becomes None."""

        def json_values(values: FloatArray) -> list[float | None]:
            return [float(v) if np.isfinite(v) else None for v in values]

        return {
            "relative_error": self.relative_error, "rmse": json_values(self.rmse), "mae": json_values(self.mae),
            "max": json_values(self.maximum), "R": json_values(self.R), "explained": json_values(self.explained),
        }  # fmt: skip


def torque_metrics(measured: FloatArray, predicted: FloatArray, use: BoolArray | None = None) -> Metrics:
    """Return the metrics of `predicted` against `measured` (K, n) over the rows where `use` (K, n) is True."""
    n = measured.shape[1]
    use = np.ones(measured.shape, dtype=bool) if use is None else use
    error = np.where(use, measured - predicted, 0.0)
    torque = np.where(use, measured, 0.0)
    rmse, mae, maximum, R, explained = (np.full(n, np.nan) for _ in range(5))
    for j in range(n):
        rows = use[:, j]
        if not rows.any():
            continue
        e, y, z = error[rows, j], measured[rows, j], predicted[rows, j]
        rmse[j], mae[j], maximum[j] = np.sqrt(np.mean(e**2)), np.abs(e).mean(), np.abs(e).max()
        spread_y, spread_z = y - y.mean(), z - z.mean()
        power_y, power_z = float(spread_y @ spread_y), float(spread_z @ spread_z)
        if power_y > 0.0:
            explained[j] = 1.0 - float(e @ e) / power_y
            if power_z > 0.0:
                R[j] = float(spread_y @ spread_z) / np.sqrt(power_y * power_z)
    norm = float(np.linalg.norm(torque))
    relative = float(np.linalg.norm(error)) / norm if norm > 0.0 else float("nan")
    return Metrics(relative, rmse, mae, maximum, R, explained, use.sum(axis=0).astype(np.float64))
