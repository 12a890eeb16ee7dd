"""Blocks of the PLC's ring buffer to frames.

Start with `stream.SampleStream`, which polls blocks or takes notified ones, and yields each cycle's frame once and in
order over restarts and reconnections.

- `decode`: the bytes of a block to channels in SI units (compiled).
- `clock`: the PLC's time, and its rate against CLOCK_MONOTONIC.
- `_ring` decides which blocks to read, `_timeline` numbers and dates samples; both work without I/O.
"""

__all__ = ["clock", "decode", "stream"]
