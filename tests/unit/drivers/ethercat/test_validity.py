"""Which joints are valid by working counter and states."""

from __future__ import annotations

import pytest

from drivers.ethercat.bus.slave_recovery import INIT, OP, SAFEOP, AlStatus
from drivers.ethercat.bus.validity import valid_joints

UP, DOWN, SAFE = AlStatus(OP), AlStatus(INIT), AlStatus(SAFEOP, True, 0x1B)


@pytest.mark.parametrize(
    ("missing", "statuses", "valid"),
    [
        (3, [UP, UP, UP], None),  # nobody known to be away
        (3, [UP, None, UP], [True, False, True]),
        (3, [UP, DOWN, UP], [True, False, True]),
        (6, [UP, None, None], [True, False, False]),
        (6, [UP, None, UP], None),  # one more is away
        (1, [UP, None, UP], None),
        (2, [UP, SAFE, UP], [True, True, True]),  # sends, but takes no outputs
        (5, [None, SAFE, UP], [False, True, True]),
        (3, [], None),
    ],
)
def test_three_drives(missing: int, statuses: list[AlStatus | None], valid: list[bool] | None) -> None:
    known_statuses = statuses or [UP] * 3
    joints, known = valid_joints(missing, known_statuses, [(2, 1)] * 3, (0, 1, 2))
    assert known == (valid is not None)
    assert joints.tolist() == (valid or [False] * 3)


def test_joints_by_position_and_slaves_that_are_no_drives() -> None:
    # A coupler without process data at position 0; the joints are wired the other way round.
    joints, known = valid_joints(3, [UP, None, UP], [(0, 0), (2, 1), (2, 1)], (2, 1))
    assert known
    assert joints.tolist() == [True, False]
