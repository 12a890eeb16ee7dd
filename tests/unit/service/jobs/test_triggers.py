"""When an arm is identified again by itself."""

from __future__ import annotations

from typing import Any

import pytest

from service.config.jobs import ReidentifyConfig
from service.jobs._triggers import Trigger


def trigger(**settings: Any) -> Trigger:
    return Trigger(ReidentifyConfig(**({"min_interval_s": 100.0} | settings)), last_s=0.0)


#: Settings, and steps: a call with its arguments, or a time and what is due then.
SCENARIOS: dict[str, tuple[dict[str, Any], str]] = {
    "at once the first time, and until cleared": (
        {},
        "5 -; report invalid 5; 5 invalid; fire 5; 104 -; 105 invalid; clear invalid; 1e9 -",
    ),
    "only what is configured": ({"when": ("invalid",)}, "report drift 1; 1e6 -; report invalid 2; 2 invalid"),
    "the interval delays and loses nothing": ({}, "report drift 0; fire 0; report drift 10; 99.9 -; 100 drift"),
    "what is over does not fire": ({"settle_s": 10.0}, "report drift 0; clear drift; 1e6 -"),
    "reports end separately": (
        {},
        "report drift 0; report invalid 1; clear drift; 2 invalid; clear drift; 2 invalid; clear invalid; 2 -",
    ),
    "settling counts from the first report": (
        {"settle_s": 30.0},
        "report drift 10; report drift 35; 39.9 -; 40 drift; clear drift; report drift 50; 79.9 -; 80 drift",
    ),
    "holds": (
        {"every_h": 0.01},
        "report drift 0; hold change 50; 49.9 -; 50 drift; hold payload; hold sensor; 1e6 -; release payload; 1e6 -; "
        "release sensor; 50 drift; hold payload; hold sensor; release; 50 drift",
    ),
    "schedule": (
        {"every_h": 1.0},
        "3599 -; 3600 schedule; fire 3600; 7199 -; report drift 7199; 7200 drift; fire 7200; 7201 -",
    ),
    "the interval holds for the schedule": ({"every_h": 0.01}, "fire 0; 99 -; 100 schedule"),
    "postponed": ({}, "report invalid 0; put_off 0; 9.9 -; 10 invalid"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str) -> None:
    settings, steps = SCENARIOS[name]
    one = trigger(**settings)
    for step in steps.split("; "):
        word, *rest = step.split()
        if hasattr(one, word):
            getattr(one, word)(*(float(each) if each[0].isdigit() else each for each in rest))
        else:
            assert (one.due(float(word)) or "-") == rest[0], step
