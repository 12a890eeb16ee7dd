"""`RingReader`: every block of a ring that is being written once and in order, or counted as lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drivers.ads.ring._ring import BlockState, RingReader

BLOCKS = 8


class Writer:
    """The PLC: numbers of the blocks in each place."""

    def __init__(self) -> None:
        self.first = [0] * BLOCKS
        self.last = [0] * BLOCKS
        self.complete = 0

    def begin(self) -> None:
        self.first[self.complete % BLOCKS] = self.complete

    def end(self) -> None:
        self.last[self.complete % BLOCKS] = self.complete
        self.complete += 1


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.integers(1, 20)), min_size=1, max_size=60))
def test_no_block_twice_none_out_of_order_all_accounted_for(steps: list[tuple[int, bool, int]]) -> None:
    writer, reader = Writer(), RingReader(BLOCKS)
    taken = []
    for written, halfway, most in steps:
        for _ in range(written):
            writer.begin()
            writer.end()
        if halfway:
            writer.begin()
        for number in reader.due(writer.complete, most):
            place = reader.place(number)
            verdict = reader.classify(number, writer.first[place], writer.last[place])
            if verdict is not BlockState.COMPLETE:
                break
            reader.take(number)
            taken.append(number)
    assert taken == sorted(set(taken))
    assert len(taken) + reader.skipped == reader.next
    assert reader.next <= writer.complete
    if all(written + 2 < BLOCKS - 3 and most >= BLOCKS for written, _, most in steps):
        assert reader.skipped == 0


def test_classification_of_blocks() -> None:
    reader = RingReader(BLOCKS)
    reader.start(10)
    assert reader.classify(9, 9, 9) is BlockState.KNOWN
    assert reader.classify(10, 10, 10) is BlockState.COMPLETE
    assert reader.classify(10, 2, 2) is BlockState.NOT_YET
    assert reader.classify(10, 18, 10) is BlockState.GONE
    assert reader.classify(10, 10, 2) is BlockState.TORN
    assert reader.torn == 1


def test_overrun_is_counted_once_and_leaves_a_margin() -> None:
    reader = RingReader(BLOCKS)
    assert reader.due(0, 5) == []
    assert reader.due(100, 50) == list(range(95, 100))  # oldest is 93, two more may be written meanwhile
    assert (reader.overruns, reader.skipped) == (1, 95)
    assert reader.due(103, 50)[0] == 98
    assert (reader.overruns, reader.skipped) == (1, 98)
    reader.take(98)
    assert reader.due(200, 50)[0] == 195
    assert (reader.overruns, reader.skipped) == (2, 98 + 96)
