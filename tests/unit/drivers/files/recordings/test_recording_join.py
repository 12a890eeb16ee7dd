"""Joining of recordings of one arm, and spans: parsing and bounds."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.files.recordings.join import GAP_S, JoinError, join_recordings
from drivers.files.recordings.recording import Recording, RecordingMeta
from drivers.files.recordings.span import Span, SpanError
from rt_core.identification.preprocess import SignalSettings, prepare

META = RecordingMeta("arm", ("one", "two"), ("rad", "rad"), 100.0)


def recording(samples: int, first_ns: int = 5, **more: object) -> Recording:
    t = np.arange(samples) / 100.0
    q = np.random.default_rng(samples).normal(size=(samples, 2))
    channels = {"q": q, "tau": 2.0 * q} | {name: q for name in more.pop("channels", ())}  # type: ignore[attr-defined]
    made = Recording(t, first_ns + np.rint(t * 1e9).astype(np.int64), 7 + np.arange(samples), channels, META)
    return replace(made, **more)  # type: ignore[arg-type]


def test_recordings_are_joined_with_a_gap() -> None:
    a = recording(50, path=Path("a.mcap"), channels=("dq",))
    b = recording(80, first_ns=10**15, path=Path("b.mcap"), valid=np.zeros((80, 2), dtype=bool))
    joined = join_recordings([a, b])
    spans = joined.spans
    assert joined.samples == 130
    assert set(joined.channels) == {"q", "tau"}  # what both have
    np.testing.assert_array_equal(joined.channels["q"], np.vstack((a.channels["q"], b.channels["q"])))
    assert (np.diff(joined.t) > 0.0).all()
    assert spans == ((0.0, pytest.approx(0.49)), (pytest.approx(0.49 + GAP_S), pytest.approx(0.49 + GAP_S + 0.79)))
    steps = np.diff(joined.seq)
    assert (np.delete(steps, 49) == 1).all()
    assert steps[49] > 1  # frames are missing between
    assert joined.valid[:50].all()
    assert not joined.valid[50:].any()
    assert str(joined.path) == "a.mcap + b.mcap"
    assert joined.parts == (a, b)
    assert joined.sha256 not in (a.sha256, b.sha256)


def test_the_same_recording_twice_is_refused() -> None:
    a, b = recording(50, path=Path("a.mcap")), recording(80, path=Path("b.mcap"))
    with pytest.raises(JoinError, match=r"copy.mcap holds the same as a.mcap: give each recording once"):
        join_recordings([a, b, replace(a, path=Path("copy.mcap"))])


def cut(whole: Recording, first: int, last: int, path: str) -> Recording:
    """Return some samples of a recording as a recording of their own."""
    part = slice(first, last)
    channels = {name: values[part] for name, values in whole.channels.items()}
    return replace(
        whole, t=whole.t[part] - whole.t[first], t_ns=whole.t_ns[part], seq=whole.seq[part], channels=channels,
        path=Path(path),
    )  # fmt: skip


def test_overlapping_recordings_are_refused() -> None:
    """A part of a recording, and overlapping parts; but not arms that start alike."""
    whole = recording(500, path=Path("whole.mcap"))
    other = replace(cut(whole, 100, 300, "window.mcap"), metadata={"note": "live"})
    for a, b, both in ((whole, other, 200), (cut(whole, 0, 300, "a.mcap"), cut(whole, 280, 500, "b.mcap"), 20)):
        with pytest.raises(JoinError, match=f"{both} samples of {b.path} are in {a.path} too"):
            join_recordings([a, b])
    a, b = cut(whole, 0, 250, "a.mcap"), cut(whole, 250, 500, "b.mcap")
    assert join_recordings([a, b]).samples == 500
    from_zero = recording(400, path=Path("zero.mcap"))
    from_zero.channels["q"][:3], from_zero.channels["tau"][:3] = whole.channels["q"][:3], whole.channels["tau"][:3]
    assert join_recordings([whole, from_zero]).samples == 900


def test_sparse_temperatures_are_extended_to_the_join() -> None:
    """Temperatures come every second and at neither end; the last one is impossible."""
    recordings = []
    for seed, warmth in ((500, 20.0), (570, 40.0)):
        r = recording(seed)
        values = np.full((r.samples, 2), np.nan)
        values[30::100] = warmth
        values[r.samples - 10] = 2000.0
        recordings.append(replace(r, channels={**r.channels, "temperature": values}))
    joined = join_recordings(recordings)
    signals = prepare(
        joined.t, joined.channels["q"], joined.channels["tau"], SignalSettings(cutoff_hz=10.0),
        temperature=joined.channels["temperature"], spans=joined.spans,
    )  # fmt: skip
    assert [set(np.unique(piece.temperature)) for piece in signals.pieces] == [{20.0}, {40.0}]
    assert signals.impossible_temperatures == 4
    assert np.isnan(recordings[0].channels["temperature"][-1]).all()  # the recording itself is unchanged


def test_other_arms_and_rates_are_refused() -> None:
    a = recording(50, path=Path("a.mcap"))
    for meta, words in (
        (replace(META, joint_names=("one", "three")), "b.mcap has joints one, three, a.mcap one, two"),
        (replace(META, robot="other"), "b.mcap has robot other, a.mcap arm: one arm at a time"),
        (replace(META, units=("rad", "m")), "b.mcap has units rad, m, a.mcap rad, rad"),
        (replace(META, rate_hz=250.0), "b.mcap has 250 samples a second, a.mcap 100"),
    ):
        with pytest.raises(JoinError, match=words):
            join_recordings([a, recording(50, path=Path("b.mcap"), meta=meta)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0:0.6", Span(0.0, 0.6)), ("0:4.91s", Span(0.0, 4.91, seconds=True)), (":0.5", Span(None, 0.5)),
     ("2s:", Span(2.0, None, seconds=True)), (":", Span())],
)  # fmt: skip
def test_parse(text: str, expected: Span) -> None:
    assert Span.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [("0.6", "expected START:STOP"), ("a:b", "not a number"), ("0.6:0.1", "not before its end"),
     ("0.5:0.5", "not before its end"), ("0:60", "write 60s if seconds"), ("-1:1", "negative"),
     ("nan:1", "not a finite"), ("0.1s:0.5", "both the same way")],
)  # fmt: skip
def test_parse_refuses(text: str, message: str) -> None:
    with pytest.raises(SpanError, match=message):
        Span.parse(text)


@given(st.text(alphabet="0123456789.:sein-+ ", max_size=12))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        span = Span.parse(text)
    except SpanError:
        return
    assert Span.parse(str(span)) == span


def test_bounds() -> None:
    assert Span.parse("0:0.6").bounds(0.0, 10.0) == (0.0, 6.0)
    assert Span.parse("0.6:1").bounds(0.0, 10.0) == (6.0, math.inf)
    assert Span.parse("1s:10s").bounds(0.0, 10.0) == (1.0, math.inf)
    assert Span.parse("1s:10.001s").bounds(0.0, 10.0, tolerance=0.002) == (1.0, math.inf)
    assert Span.parse("0.5:").bounds(4.0, 10.0) == (7.0, math.inf)
    with pytest.raises(SpanError, match="ends at 10 s"):
        Span.parse("1s:11s").bounds(0.0, 10.0)
    with pytest.raises(SpanError, match="ends at 10 s"):
        Span.parse("11s:").bounds(0.0, 10.0)
