"""`thetad jobs`, `events` and `models` where no daemon is asked, or none answers."""

from __future__ import annotations

import re

import pytest

from tests.lab.command_line import thetad

NOBODY = "tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    "command",
    [
        ("jobs", "submit", "validate", "model=active", "recording=live:5"),
        ("jobs", "list"),
        ("jobs", "show", "1"),
        ("jobs", "log", "1", "--follow"),
        ("jobs", "cancel", "1", "2"),
        ("jobs", "retry", "1"),
        ("jobs", "reidentify"),
        ("events",),
        ("events", "--follow"),
        ("models", "list"),
        ("models", "show", "active"),
        ("models", "diff", "job:1", "abcdef"),
        ("models", "promote", "job:1", "--recording", "live:5"),
        ("models", "rollback"),
    ],
    ids=" ".join,
)
def test_without_a_daemon_each_command_says_so(command: tuple[str, ...]) -> None:
    done = thetad(*command, "--control", NOBODY, "--timeout", "0.2")
    assert done.code == 3
    assert done.out == ""
    assert done.err == f"thetad: {NOBODY}: no answer within 0.2 s; is the daemon running?\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("jobs", "submit", "nothing"), ("nothing", "identify, validate")),
        (("jobs", "submit", "identify"), ("recording: is missing",)),
        (("jobs", "submit", "identify", "rec.mcap"), ("'rec.mcap'", "NAME=VALUE")),
        (("jobs", "submit", "identify", "recording=a", "recording=b"), ("recording is given twice",)),
        (("jobs", "submit", "identify", "recording=a", "methods=ols"), ("methods: is no parameter", "method,")),
        (("jobs", "submit", "identify", "recording=a", "starts=0"), ("starts", "got 0")),
        (("jobs", "submit", "identify", "recording=a", "weight=NaN"), ("weight", "got 'NaN'")),
        (("jobs", "submit", "identify", "recording=a", "starts=1" + "0" * 5000), ("starts",)),
        (("jobs", "submit", "identify", "recording=a", "bounds=" + "[" * 100_000), ("bounds",)),
        (("jobs", "submit", "identify", "recording=a", "span=0.6:0.2"), ("span", "0.6:0.2")),
        (("jobs", "submit", "identify", "recording=a", "--in", "soon"), ("'soon'", "10m")),
        (("jobs", "submit", "identify", "recording=a", "--in=-5"), ("'-5'",)),
        (("jobs", "submit", "identify", "recording=a", "--in", "9999999d"), ("'9999999d'",)),
        (("jobs", "submit", "identify", "recording=a", "--after", "x"), ("'x' is not the number of a job",)),
        (("jobs", "submit", "identify", "recording=a", "--timeout", "nan"), ("--timeout nan",)),
        (("jobs", "list", "--timeout", "inf"), ("--timeout inf",)),
        (("jobs", "list", "--limit", "0"), ("'0'",)),
        (("jobs", "list", "--limit", "1001"), ("'1001'", "1000")),
        (("events", "--limit", "5001"), ("'5001'", "5000")),
        (("jobs", "submit", "identify", "recording=a", "--memory", "2GB"), ("'2GB'", "megabytes")),
        (("jobs", "list", "--state", "lost"), ("'lost'",)),
        (("jobs", "show", "x"), ("'x' is not the number of a job",)),
        (("jobs", "show", "9" * 30), ("is not the number of a job",)),
        (("jobs", "log", "1", "--follow", "--json"), ("--follow",)),
        (("jobs", "cancel"), ("ID",)),
        (("models", "show", "nope"), ("nope: no such file", "thetad models list")),
        (("models", "show", "nope.yaml"), ("nope.yaml: no such file",)),
        (("models", "promote", "active", "--recording", "r.mcap", "--span", "1:0"), ("span", "1:0")),
        (("models", "promote", "m.yaml"), ("--recording",)),
        (("models", "diff", "a.yaml"), ("B",)),
        (("models", "diff", "a.yaml", "b.yaml", "--z", "x"), ("--z", "'x'")),
    ],
    ids=lambda value: " ".join(value)[:60],
)
def test_nonsense_is_refused_in_one_line(command: tuple[str, ...], words: tuple[str, ...]) -> None:
    thetad(*command, "--control", NOBODY).refused(*words)


def test_kinds_are_listed_with_what_they_take() -> None:
    thetad("jobs", "kinds", "nothing").refused("nothing", "identify, validate")
    from service.jobs.kinds import find_kind

    kinds = {
        kind["name"]: kind for kind in thetad("jobs", "kinds", "identify", "compare", "promote", "--json").json["kinds"]
    }
    assert list(kinds) == ["identify", "compare", "promote"]
    assert [name for name, kind in kinds.items() if kind["needs_arm"]] == ["promote"]
    for name, kind in kinds.items():
        required = {row["name"] for row in kind["parameters"] if row["required"]}
        given = dict.fromkeys(required, "x.mcap")
        by_itself = find_kind(name).read(given).model_dump(mode="json")
        listed = {row["name"]: row["default"] for row in kind["parameters"]}
        assert {key: value for key, value in by_itself.items() if key not in required} == {
            key: value for key, value in listed.items() if key not in required
        }
    types = {row["name"]: row["type"] for row in kinds["identify"]["parameters"]}
    assert types["multi_start"] == "whole number, 1 to 256"
    assert types["loss"] == "bisquare | huber | none"
    assert types["bounds"] == "map of [number, number]"
    text = thetad("jobs", "kinds", "identify").out
    assert re.search(r"^  recording +a recording: .*\(required\)$", text, re.M)
    assert re.search(r'^  method +ols \| .* \| ga .*, default "wls"$', text, re.M)
