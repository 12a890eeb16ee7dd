"""Set positions: every cycle once, in buffers that overlap, and none that would be a jump."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ads.axes.setpoints import Buffer, SetpointStream, encode
from drivers.ads.config import AdsConfig
from drivers.ads.layout import Sizes, checksum, structure
from drivers.driver import CommandRefusedError
from rt_core.types import FloatArray

LEAD, CAPACITY, MARGIN = 40, 100, 8
RUN = 1


def point(value: float) -> FloatArray:
    return np.array([value, -value])


def written(steps: list[tuple[int, bool]]) -> tuple[dict[int, FloatArray], dict[int, float]]:
    """Play a ramp; `steps` are the cycles from one poll to the next, and whether a frame in it is lost.

    Returns the points that the PLC would use, by cycle, and the targets that were given.
    """
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(7, RUN)
    used: dict[int, FloatArray] = {}
    given_: dict[int, float] = {}
    cycle = now = 1000
    value = 0.0
    for cycles, lost in steps:
        for k in range(cycles):
            if not (lost and k == 0 and cycle > 1000):
                value += 1e-3
                stream.add(cycle, point(value), point(0.0), now)
                given_[cycle + LEAD] = value
            cycle += 1
        now = cycle - 1
        buffer = stream.due(now, 12)
        if buffer is not None:
            assert len(buffer.points) <= CAPACITY
            for at in range(now + 1, buffer.first + len(buffer.points)):
                if at >= buffer.first:
                    new = buffer.points[at - buffer.first]
                    assert at not in used or np.array_equal(used[at], new), "a point never changes"
                    used[at] = new
    return used, given_


@given(st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=3, max_size=60))
def test_each_target_is_the_point_of_its_cycle(steps: list[tuple[int, bool]]) -> None:
    used, targets = written(steps)
    for cycle, value in targets.items():
        if cycle in used:
            np.testing.assert_allclose(used[cycle], point(value))
    cycles = sorted(used)
    assert cycles == list(range(cycles[0], cycles[-1] + 1)) if cycles else True
    for one, two in pairwise(cycles):
        assert abs(used[two][0] - used[one][0]) <= 1e-3 + 1e-12, "no jump"


def test_begins_along_a_line_from_where_the_axes_are() -> None:
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(0, RUN)
    stream.add(100, point(1.0), point(0.0), 105)
    buffer = stream.due(105, 10)
    assert buffer is not None
    assert (buffer.sequence, buffer.first, len(buffer.points)) == (1, 121, 20)
    np.testing.assert_allclose(buffer.points[:, 0], np.arange(1, 21) / 20.0)


def test_first_points_are_those_that_the_plc_gets_in_time() -> None:
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(0, RUN)
    stream.add(100, point(1.0), point(0.0), 125)  # its cycle is 140, and the PLC gets 133 at the earliest
    buffer = stream.due(125, 40)
    assert buffer is not None
    assert buffer.first == 133
    np.testing.assert_allclose(buffer.points[:, 0], np.arange(1, 9) / 8.0)


@pytest.mark.parametrize(("now", "late"), [(132, 1), (140, 9)])
def test_a_first_target_that_is_too_late_is_refused(now: int, late: int) -> None:
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(0, RUN)
    with pytest.raises(CommandRefusedError, match=rf"{late} cycles too late.* longer lead_ms"):
        stream.add(100, point(1.0), point(0.0), now)
    assert not stream.active
    assert stream.due(now, 1000) is None


@pytest.mark.parametrize(
    ("own", "of_plc", "run", "used"),
    [(9, 4, RUN, 10), (9, 12, RUN, 13), (9, 4, RUN + 1, 5), (0xFFFFFFFE, 0xFFFFFFFF, RUN, 0), (0xFFFFFFFF, 1, RUN, 2)],
)
def test_no_number_is_used_twice_in_a_run(own: int, of_plc: int, run: int, used: int) -> None:
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(own, RUN)
    stream.begin(of_plc, run)
    stream.add(0, point(0.0), point(0.0), 0)
    buffer = stream.due(0, 1000)
    assert buffer is not None
    assert buffer.sequence == used


def test_sequence_goes_on_after_that_of_the_plc() -> None:
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(41, RUN)
    stream.add(0, point(0.0), point(0.0), 0)
    buffer = stream.due(0, 10)
    assert buffer is not None
    assert buffer.sequence == 42


def test_a_target_after_the_last_point_ran_out_is_refused() -> None:
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(0, RUN)
    stream.add(0, point(0.0), point(0.0), 0)
    stream.add(1, point(0.0), point(0.0), LEAD)
    with pytest.raises(CommandRefusedError, match=r"comes 1 cycles after .* longer lead_ms"):
        stream.add(2, point(0.0), point(0.0), LEAD + 2)


def test_bytes_are_those_of_the_layout() -> None:
    sizes = Sizes(axes=2, setpoints=5)
    points = np.arange(6.0).reshape(3, 2)
    raw = bytes(encode(Buffer(9, 77, points), 123, sizes))
    found = structure("ST_ThetaSetpoints", sizes).from_buffer_copy(raw)
    assert (found.nStart, found.nFirst, found.nSequence, found.nCount) == (123, 77, 9, 3)
    np.testing.assert_array_equal(np.array(found.aPoint), [[0, 1], [2, 3], [4, 5], [0, 0], [0, 0]])
    assert found.nChecksum == checksum(raw)


def test_a_name_for_some_axes_only_is_refused() -> None:
    axes = [{"joint": "a", "name": "X"}, {"joint": "b"}]
    with pytest.raises(ValueError, match="name is given to some axes only"):
        AdsConfig.model_validate({"net_id": "1.2.3.4.1.1", "axis": axes})
