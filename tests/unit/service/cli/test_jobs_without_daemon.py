"""`thetad jobs`, `events` and `models` where no daemon is asked, or none answers."""

from __future__ import annotations

import re

import pytest

from tests.lab.command_line import thetad

NOBODY = "tcp://127.0.0.1:1"
SUBMIT = ("jobs", "submit", "identify", "recording=a")


@pytest.mark.parametrize(
    "command",
    [
        "jobs submit validate model=active recording=live:5", "jobs list", "jobs log 1 --follow", "jobs cancel 1 2",
        "jobs reidentify", "events --follow", "models show active", "models promote job:1 --recording live:5",
    ],
)  # fmt: skip
def test_without_a_daemon_each_command_says_so(command: str) -> None:
    done = thetad(*command.split(), "--control", NOBODY, "--timeout", "0.2")
    assert (done.code, done.out) == (3, "")
    assert done.err == f"thetad: {NOBODY}: no answer within 0.2 s; is the daemon running?\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("identfy", "rec.mcap"), ("'identfy': did you mean 'identify'?",)),
        (("jobs", "lst"), ("'lst': did you mean 'list'?",)),
        (("jobs", "submit", "nothing"), ("nothing", "identify, validate")),
        (("jobs", "submit", "identify"), ("recording: is missing",)),
        (("jobs", "submit", "identify", "rec.mcap"), ("'rec.mcap'", "NAME=VALUE")),
        ((*SUBMIT, "recording=b"), ("recording is given twice",)),
        ((*SUBMIT, "methods=ols"), ("methods: is no parameter", "method,")),
        ((*SUBMIT, "weight=NaN"), ("weight", "got 'NaN'")),
        ((*SUBMIT, "starts=1" + "0" * 5000), ("starts",)),
        ((*SUBMIT, "bounds=" + "[" * 100_000), ("bounds",)),
        ((*SUBMIT, "span=0.6:0.2"), ("span", "0.6:0.2")),
        ((*SUBMIT, "--in", "soon"), ("'soon'", "10m")),
        ((*SUBMIT, "--timeout", "nan"), ("--timeout nan",)),
        (("jobs", "list", "--limit", "1001"), ("'1001'", "1000")),
        (("jobs", "list", "--state", "lost"), ("'lost'",)),
        (("jobs", "show", "9" * 30), ("is not the number of a job",)),
        (("jobs", "log", "1", "--follow", "--json"), ("--follow",)),
        (("jobs", "cancel"), ("ID",)),
        (("models", "show", "nope"), ("nope: no such file", "thetad models list")),
        (("models", "promote", "active", "--recording", "r.mcap", "--span", "1:0"), ("span", "1:0")),
        (("models", "promote", "m.yaml"), ("--recording",)),
        (("models", "diff", "a.yaml", "b.yaml", "--z", "x"), ("--z", "'x'")),
    ],
    ids=lambda value: " ".join(value)[:60],
)
def test_nonsense_is_refused_in_one_line(command: tuple[str, ...], words: tuple[str, ...]) -> None:
    thetad(*command, "--control", NOBODY).refused(*words)


def test_kinds_are_listed_with_what_they_take() -> None:
    kinds = thetad("jobs", "kinds", "identify", "promote", "--json").json["kinds"]
    assert [(kind["name"], kind["needs_arm"]) for kind in kinds] == [("identify", False), ("promote", True)]
    types = {row["name"]: row["type"] for row in kinds[0]["parameters"]}
    assert types["multi_start"] == "whole number, 1 to 256"
    assert types["loss"] == "bisquare | huber | none"
    text = thetad("jobs", "kinds", "identify").out
    assert re.search(r'^  method +estimator, default "wls"\n +ols \| .* \| ga .*$', text, re.M)
