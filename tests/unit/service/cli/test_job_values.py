"""What users type about jobs, and what they read: values, times, tables."""

import argparse
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import convert
from pydantic import ConfigDict

from service.cli._common import CliError, number
from service.cli.daemon.events import new_events
from service.cli.jobs.jobs import new_text
from service.cli.jobs.text import job_text, left_text, line, now_line, took
from service.cli.jobs.values import (
    command_again,
    described,
    duration,
    job_id,
    model_reference,
    read_parameters,
    whole_path,
)
from service.cli.main import build_parser
from service.jobs.kinds import find_kind
from service.jobs.queue.queue import Queue
from service.jobs.queue.store import Event, Store
from service.operations.kind import Kind, Parameters
from service.protocol.job_replies import JobDetail


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1.5", 1.5), (".5s", 0.5), ("10m", 600), ("2h", 7200), ("3d", 259200)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("read", [duration, job_id, number(1, 1000, whole=True)])
def test_other_texts_are_no_numbers(read: Any) -> None:
    for text in ("", "x", "-1", "1e3", "inf", "nan", "٣", "1 ", "9" * 400):
        with pytest.raises(argparse.ArgumentTypeError, match="is no"):
            read(text)


def test_numbers_have_limits() -> None:
    assert [number(1, 1000, whole=True)(text) for text in ("1", "1000")] == [1, 1000]
    assert [number(1e-6)(text) for text in ("900", "9e2")] == [900.0, 900.0]
    for read, wrong in ((number(1, 1000, whole=True), ("0", "1001")), (number(1e-6), ("0.0", "inf", "9_0", "900MB"))):
        for text in wrong:
            with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a (whole )?number"):
                read(text)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7").touch()
    (tmp_path / "robot.toml").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("seed=3", 3), ("span=0:0.6", "0:0.6"), ('span="0:0.6"', "0:0.6"), ("weight=null", None),
        ("min_velocity=[0.1, 0.2]", [0.1, 0.2]), ('bounds={"vb1": [0.01, 0.2]}', {"vb1": [0.01, 0.2]}),
        ("robot=franka_panda", "franka_panda"), ("robot=robot.toml", "{here}/robot.toml"),
        ('robot={"name": "a=b"}', '{"name": "a=b"}'), ("prior=cad.toml", "{here}/cad.toml"),
        ("recording=live:60", "live:60"), ("recording=job:12", "job:12"), ("recording=./a=b.mcap", "{here}/a=b.mcap"),
        ("recording=7", "{here}/7"), ("recording=/tmp/x.mcap", "/tmp/x.mcap"),
        ("recording=nowhere", "{here}/nowhere"), ("recording=../live:60", "{here}/../live:60"),
        ("recording=active", "active"),
    ],
)  # fmt: skip
def test_values_of_parameters(here: Path, pair: str, value: Any) -> None:
    pairs = [pair] if pair.startswith("recording=") else ["recording=live:60", pair]
    wanted = value.replace("{here}", str(here)) if isinstance(value, str) and "{here}" in value else value
    assert read_parameters(find_kind("identify"), pairs)[pair.partition("=")[0]] == wanted


def test_references_are_no_paths(here: Path) -> None:
    for text in ("active", "job:12", "model:3fa9", "live:60"):
        (here / text).touch()
        assert whole_path(text) == text


def test_models_are_named_in_four_ways(here: Path) -> None:
    (here / "abcdef").touch()
    names = ("active", "job:12", "model:3fa9", "3fa9", "m.yaml", "abcdef")
    found = [model_reference(name) for name in names]
    assert found == ["active", "job:12", "model:3fa9", "model:3fa9", str(here / "m.yaml"), str(here / "abcdef")]
    for wrong in ("live:60", "3fa", "3FA9", "", "a" * 65, "\0"):
        with pytest.raises(CliError, match="no such file"):
            model_reference(wrong)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class Anything(Parameters):
    """Parameters of any name."""

    model_config = ConfigDict(extra="allow")


ANYTHING = Kind(name="any", help="", parameters=Anything, run=pytest.fail)


def a_job(**values: Any) -> Any:
    """A job as the daemon tells of one that was just queued, with `values` in place of its own."""
    fields: dict[str, Any] = {
        "id": 12, "kind": "validate", "arm": None, "state": "queued", "origin": "request", "priority": 0,
        "created": "2026-11-22T05:00:00.000+00:00", "started": None, "finished": None, "due": None, "attempts": 0,
        "interruptions": 0, "after": [], "waits": "", "share": None, "doing": "", "left_s": None, "reason": "",
        "verdict": None, "summary": None, "parameters": {}, "inputs": {},
        "limits": {"time_s": 3600.0, "memory_mb": 4000.0}, "log": "", "outcome": None, "parts": [], "partial": [],
    }  # fmt: skip
    assert set(values) <= set(fields)
    return convert(fields | values, JobDetail)


def test_a_reply_is_read_by_names_in_brackets_for_one_version_more() -> None:
    job = a_job(state="failed")
    with pytest.warns(DeprecationWarning, match="use .state"):
        assert job["state"] == job.state == "failed"
    with pytest.warns(DeprecationWarning):  # noqa: PT030  one for each field
        assert dict(job)["kind"] == "validate"
    with pytest.raises(KeyError, match="sate"):
        job["sate"]


parser = cache(build_parser)
LIMITS = "--time 3600 --memory 4000"


@example({"a": "Infinity", "b": "NaN", "c": "1e400", "d": "null", "e": '"x"', "f": "-1", "g": "a b'c"})
@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), json_values, max_size=4))
def test_the_command_that_repeats_a_job_gives_its_parameters(parameters: dict[str, Any]) -> None:
    """Whatever the values are, the shell and the parser read them back."""
    job = a_job(kind="any", arm="panda", parameters=parameters, priority=-3, limits={"time_s": 1.5, "memory_mb": 2e6})
    parsed = parser().parse_args(shlex.split(command_again(job, {}))[1:])
    assert (parsed.kind, parsed.arm, parsed.priority, parsed.time, parsed.memory) == ("any", "panda", -3, 1.5, 2e6)
    assert read_parameters(ANYTHING, parsed.pairs) == parameters


def test_the_command_that_repeats_a_job_takes_the_same_files() -> None:
    inputs = {"recording": {"path": "/w/a.window", "sha256": "0"}, "model": {"job": 7}}
    job = a_job(parameters={"recording": "live:60", "model": "job:0", "span": None}, inputs=inputs)
    again = f"thetad jobs submit validate recording=/w/a.window model=job:7 {LIMITS}"
    assert command_again(job, {"span": None}) == again
    job.inputs["model"], job.parameters["model"] = {"path": "/o/3f", "sha256": "3f"}, "active"
    assert "model=/o/3f" in command_again(job, {})


def test_a_described_robot_is_told_of_in_words() -> None:
    """Leaving it out would mean the arm's robot of today, which may be another."""
    given: dict[str, Any] = {"recording": "/r.mcap", "robot": '{"name": "emps"}', "prior": "emps"}
    job = a_job(kind="identify", arm="axis", parameters=given)
    assert described(job) == ["robot"]
    text = job_text(job)
    assert re.search(r"^repeat +by no command: the description of robot is part of the job", text, re.M)
    assert "thetad jobs submit" not in text
    job = a_job(kind="identify", arm="axis", parameters=given | {"robot": "emps"})
    assert described(job) == []
    repeat = f"repeat      thetad jobs submit identify recording=/r.mcap robot=emps prior=emps --arm axis {LIMITS}"
    assert repeat in job_text(job).splitlines()


@pytest.mark.parametrize(
    ("state", "started", "finished", "text"),
    [
        ("succeeded", 0, 8, "8.0 s"),
        ("failed", 0, 8, "8.0 s"),
        ("cancelled", 0, 8, ""),  # perhaps while it waited to be run again
        ("running", 8, 0, ""),
        ("failed", 8, 0, ""),  # the beginning is of another run
        ("failed", None, 8, ""),
    ],
)
def test_the_time_of_a_job_is_that_of_a_run_that_ended(
    state: Any, started: int | None, finished: int, text: str
) -> None:
    first = None if started is None else f"2026-11-22T05:00:0{started}.000+00:00"
    job = a_job(state=state, started=first, finished=f"2026-11-22T05:00:0{finished}.000+00:00")
    assert took(job) == text
    assert line(job).partition(" in ")[2] == (text if state == "succeeded" else "")


def test_the_changing_line_has_no_control_characters() -> None:
    doing = a_job(state="running", share=0.5, doing="seed 3:\x1b[2J\nwls\r", left_s=(1.0, 3.0))
    assert now_line(doing) == "job 12 validate: running, 50 %, seed 3: [2J wls , 1 to 3 s left"
    failed = a_job(state="failed", reason="no\nsuch\tfile\x07")
    assert now_line(failed) == "job 12 validate: failed, no such file "
    assert now_line(a_job()) == "job 12 validate: queued"


def test_new_events_are_read_page_by_page(tmp_path: Path) -> None:
    """More than one answer holds have come since the last look: none is left out, none comes twice."""
    queue = Queue(Store(tmp_path / "queue.db"))
    queue.note(*(Event(k, "test", str(k)) for k in range(1200)))
    asked: list[int] = []

    def page(after: int) -> Any:
        asked.append(after)
        queue.note(Event(0, "test", "new"))
        return queue.events(after=after, limit=1201)

    assert [event.id for event in new_events(page, 0, 1201)] == list(range(1, 1203))
    assert asked == [0, 1201]
    queue.store.close()


def test_pairs_may_stand_anywhere() -> None:
    words = ["jobs", "submit", "--after", "1", "2", "a=1", "--arm", "panda", "identify", "b=--x", "--wait", "c=3"]
    parsed = parser().parse_args(words)
    assert (parsed.kind, parsed.after, parsed.arm, parsed.wait) == ("identify", [1, 2], "panda", True)
    assert sorted(parsed.pairs) == ["a=1", "b=--x", "c=3"]


@example(1.0, float("inf"))
@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_time_left_covers_the_interval(a: float, b: float) -> None:
    low, high = sorted((a, b))
    text = left_text((low, high))
    if high == float("inf"):
        assert text == left_text(None) == "time left unknown"
        return
    found = re.fullmatch(r"(?:(\d+) to |up to )?(\d+) (s|min|h) left", text)
    assert found is not None, text
    unit = {"s": 1, "min": 60, "h": 3600}[found[3]]
    first = int(found[1]) if found[1] else 0 if text.startswith("up") else int(found[2])
    assert first * unit <= low
    assert high <= int(found[2]) * unit


@given(st.lists(st.integers(0, 99), max_size=60), st.integers(0, 60), st.integers(1, 400))
def test_a_followed_log_is_printed_once(lines: list[int], cut: int, window: int) -> None:
    """Lines are numbered, so that no two are alike; the daemon keeps the last `window` characters."""
    texts = [f"<{k}:{value}>\n" for k, value in enumerate(lines)]
    first, whole = "".join(texts[:cut]), "".join(texts)
    new = new_text(first[-window:], whole[-window:])
    assert whole.endswith(new)
    if len(whole) - len(first) < window:  # nothing was lost between the two looks
        assert first + new == whole
