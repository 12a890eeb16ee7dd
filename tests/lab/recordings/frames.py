"""Recordings to test with."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from drivers.files.recordings.recording import RecordingMeta, RecordingWriter
from drivers.frame import JointFrame

META = RecordingMeta(
    "arm", ("shoulder", "slide"), ("rad", "m"), 1000.0, clock="dc", source="x.csv", extra={"who": "me"}
)
START_NS = 1_700_000_000_000_000_000


def frames(count: int, seed: int = 0) -> Iterator[JointFrame]:
    rng = np.random.default_rng(seed)
    for k in range(count):
        yield JointFrame(
            seq=k, t_bus_ns=START_NS + k * 1_000_000, t_host_ns=10 + k,
            q=rng.normal(size=2) * 10.0 ** rng.integers(-12, 3), dq=rng.normal(size=2), tau=rng.normal(size=2),
            status_word=np.array([k, 2**31 + k]),
        )  # fmt: skip


def write(path: Path, count: int, chunk_s: float = 0.5, meta: RecordingMeta = META) -> Path:
    with RecordingWriter(path, meta, chunk_s=chunk_s) as writer:
        for frame in frames(count):
            writer.write(frame)
    return path
