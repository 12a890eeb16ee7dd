"""`SetpointStream`: one point for each cycle, in overlapping buffers, without jumps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.ads.axes.setpoints import Buffer, SetpointStream, encode
from drivers.ads.layout import Sizes, checksum, structure
from drivers.driver import CommandRefusedError
from rt_core.types import FloatArray

LEAD, CAPACITY, MARGIN = 40, 100, 8
RUN = 1


def point(value: float) -> FloatArray:
    return np.array([value, -value])


def begun(sequence: int = 0) -> SetpointStream:
    stream = SetpointStream(LEAD, CAPACITY, MARGIN)
    stream.begin(sequence, RUN)
    return stream


def written(steps: list[tuple[int, bool]]) -> tuple[dict[int, FloatArray], dict[int, float]]:
    """Play a ramp; `steps` are the cycles from one poll to the next, and whether a frame in it is lost.

    Returns the points that the PLC would use, by cycle, and the targets that were given.
    """
    stream = begun(7)
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


@pytest.mark.parametrize(
    ("now", "urgent", "first", "count"),
    [(105, 10, 121, 20), (125, 40, 133, 8)],  # cycle 140 is approached over half the lead, or from cycle 133 on
)
def test_starts_along_a_line_from_the_present_position(now: int, urgent: int, first: int, count: int) -> None:
    stream = begun()
    stream.add(100, point(1.0), point(0.0), now)
    buffer = stream.due(now, urgent)
    assert (buffer.sequence, buffer.first, len(buffer.points)) == (1, first, count)
    np.testing.assert_allclose(buffer.points[:, 0], np.arange(1, count + 1) / count)


@pytest.mark.parametrize(("now", "late"), [(132, 1), (140, 9)])
def test_a_first_target_that_is_too_late_is_refused(now: int, late: int) -> None:
    stream = begun()
    with pytest.raises(CommandRefusedError, match=rf"{late} cycles too late.* longer lead_ms"):
        stream.add(100, point(1.0), point(0.0), now)
    assert not stream.active
    assert stream.due(now, 1000) is None


@pytest.mark.parametrize(
    ("own", "of_plc", "run", "used"),
    [
        (41, 41, RUN, 42), (9, 4, RUN, 10), (9, 12, RUN, 13), (9, 4, RUN + 1, 5), (0xFFFFFFFE, 0xFFFFFFFF, RUN, 0),
        (0xFFFFFFFF, 1, RUN, 2),
    ],
)  # fmt: skip
def test_no_number_is_used_twice_in_a_run(own: int, of_plc: int, run: int, used: int) -> None:
    stream = begun(own)
    stream.begin(of_plc, run)
    stream.add(0, point(0.0), point(0.0), 0)
    assert stream.due(0, 1000).sequence == used


def test_a_target_after_the_last_point_ran_out_is_refused() -> None:
    stream = begun()
    stream.add(0, point(0.0), point(0.0), 0)
    stream.add(1, point(0.0), point(0.0), LEAD)
    with pytest.raises(CommandRefusedError, match=r"comes 1 cycles after .* longer lead_ms"):
        stream.add(2, point(0.0), point(0.0), LEAD + 2)


def test_bytes_are_those_of_the_layout() -> None:
    sizes = Sizes(axes=2, setpoints=5)
    raw = bytes(encode(Buffer(9, 77, np.arange(6.0).reshape(3, 2)), 123, sizes))
    found = structure("ST_ThetaSetpoints", sizes).from_buffer_copy(raw)
    assert (found.nStart, found.nFirst, found.nSequence, found.nCount) == (123, 77, 9, 3)
    np.testing.assert_array_equal(np.array(found.aPoint), [[0, 1], [2, 3], [4, 5], [0, 0], [0, 0]])
    assert found.nChecksum == checksum(raw)
