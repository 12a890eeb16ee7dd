"""Which recordings a model was fitted to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.join import join_recordings
from drivers.files.recordings.recording import Recording, RecordingMeta, Span
from service.models.origin import frame_fingerprints, origin_of, share_seen


def recording(seed: int, folder: str) -> Recording:
    """20 s of two joints, on a clock of its own."""
    t = np.arange(2000) / 100.0
    q = np.random.default_rng(seed).normal(size=(t.size, 2))
    t_ns = 10**15 * seed + np.rint(t * 1e9).astype(np.int64)
    meta = RecordingMeta("arm", ("one", "two"), ("rad", "rad"), 100.0)
    return Recording(t, t_ns, np.arange(t.size), {"q": q, "tau": q}, meta, path=Path(f"/data/{folder}/{seed}.mcap"))


A, B, C = recording(1, "x"), recording(2, "y"), recording(3, "x")
ROWS = np.arange(1.0, 19.0, 0.1)  # what trimming leaves of each


def of_both() -> dict[str, object]:
    joined = join_recordings([A, B])
    return origin_of(joined, np.concatenate([begin + ROWS for begin, _ in joined.spans]))


def every_mark(r: Recording) -> list[tuple[int, str]]:
    marks = frame_fingerprints(r, 0.0, 20.0, r.samples)
    return [(int(t), mark.partition(":")[2]) for t, mark in zip(r.t_ns, marks, strict=True)]


def test_each_of_several_recordings_is_named_on_its_own_clock() -> None:
    data = of_both()
    assert data["recording"] == "1.mcap + 2.mcap"
    assert isinstance(data["sources"], list)
    for source, r in zip(data["sources"], (A, B), strict=True):
        own = origin_of(r, ROWS)
        for name in ("first_s", "last_s"):
            assert source.pop(name) == pytest.approx(own.pop(name))
        assert set(source.pop("frames")) <= {f"{t}:{fingerprint}" for t, fingerprint in every_mark(r)}
        assert own.pop("frames")
        assert source == own
    assert "frames" not in data


@pytest.mark.parametrize("seen", [A, B], ids=["first", "second"])
def test_rows_of_any_of_them_are_known(seen: Recording) -> None:
    data = of_both()
    assert share_seen(data, seen, ROWS) == 1.0
    assert share_seen(data, seen, np.array([18.95, 19.0, 19.05])) == 0.0
    assert share_seen(data, seen, np.array([18.95, 19.0, 19.05]), guard_s=0.12) == pytest.approx(2.0 / 3.0)
    part = seen.span(Span.parse("0.5:1"))  # another file with the same frames
    assert part.sha256 != seen.sha256
    assert share_seen(data, part, ROWS[ROWS > 10.5]) == pytest.approx(0.47, abs=0.02)
    assert share_seen(data, C, ROWS) == 0.0


def test_a_file_of_one_recording_is_read_as_ever() -> None:
    data = origin_of(A, ROWS)
    assert set(data) == {"recording", "sha256", "first_s", "last_s", "frames"}
    seen = [share_seen(data, recording, ROWS) for recording in (A, B, replace(A, path=None))]
    assert seen == [1.0, 0.0, 1.0]
    assert share_seen({"arm": "axis", "t_ns": 7}, A, ROWS) == 0.0  # of an online estimate
