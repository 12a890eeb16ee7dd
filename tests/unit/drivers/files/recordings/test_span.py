"""Spans: parsing and bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.files.recordings.span import Span, SpanError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:0.6", Span(0.0, 0.6)),
        ("0:4.91s", Span(0.0, 4.91, seconds=True)),
        (":0.5", Span(None, 0.5)),
        ("2s:", Span(2.0, None, seconds=True)),
        (":", Span()),
    ],
)
def test_parse(text: str, expected: Span) -> None:
    assert Span.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.6", "expected START:STOP"),
        ("a:b", "not a number"),
        ("0.6:0.1", "not before its end"),
        ("0.5:0.5", "not before its end"),
        ("0:60", "write 60s if seconds"),
        ("-1:1", "negative"),
        ("nan:1", "not a finite"),
        ("0.1s:0.5", "both the same way"),
    ],
)
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
