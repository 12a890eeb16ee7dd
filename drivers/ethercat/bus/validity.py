"""Whose values of a cycle can be used, by its working counter and what is known of the slaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drivers.ethercat.bus.slave_recovery import SAFEOP, AlStatus
from rt_core.types import BoolArray


def valid_joints(
    missing: int,
    statuses: Sequence[AlStatus | None],
    weights: Sequence[tuple[int, int]],
    positions: Sequence[int],
) -> tuple[BoolArray, bool]:
    """Joints whose slaves sent their inputs with a cycle of a low working counter.

    Parameters
    ----------
    missing : int
        By how much the working counter is low.
    statuses : per slave
        As last read; None: it did not answer.
    weights : per slave
        What it adds to the working counter by its outputs and its inputs.
    positions : (n,) of int
        Slave of each joint.

    Returns
    -------
    valid : (n,) bool
    known : bool
        False if the states do not explain what is missing; then no joint is valid.
    """
    gone = [status is None or status.state < SAFEOP for status in statuses]
    silent = sum(out + in_ for (out, in_), away in zip(weights, gone, strict=True) if away)
    # In SAFE-OP a slave sends inputs; after an error some take no outputs.
    deaf = sum(weights[k][0] for k, status in enumerate(statuses) if status is not None and status.state == SAFEOP)
    if missing in (silent, silent + deaf):
        return np.array([not gone[position] for position in positions], dtype=np.bool_), True
    return np.zeros(len(positions), dtype=np.bool_), False
