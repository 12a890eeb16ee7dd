"""An elastic joint estimated in a daemon, through a drop of stiffness and a restart."""

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.elastic_tracking import DROP, dropping
from service.client import BodyMessage, Subscriber
from tests.lab.arms.elastic_rig import identified_rig, rig_arm
from tests.lab.arms.harmonic_drive import TRUTH
from tests.lab.daemon.daemons import await_message, drained, log_lines
from tests.lab.daemon.shared import Site, site

FORGETTING = 0.996  # 2.5 s of motion weigh: much less than all loads take, but the change is over before the end


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An arm whose stiffness drops, held at first."""
    rig = identified_rig(tmp_path_factory.mktemp("rig"))
    drops = {**rig_arm(rig, forgetting=FORGETTING), "hold": True}
    with site(tmp_path_factory.mktemp("elastic"), drops) as found:
        yield found


def elbow(message: BodyMessage) -> dict[str, Any]:
    assert message.kind == "elastic"
    assert list(message.body["joints"]) == ["elbow"]
    said: dict[str, Any] = message.body["joints"]["elbow"]
    return said


def held(said: dict[str, Any], softer: float) -> None:
    """Assert that the intervals of spring and friction hold the truth, with `softer` times the stiffness."""
    for name, p in said["parameters"].items():
        true = TRUTH[name] * (softer if name in ("k1", "k2") else 1.0)
        assert p["lower"] < true < p["upper"], (name, p)
        assert p["upper"] - p["lower"] < 0.5 * true, (name, p)


def test_a_drop_of_stiffness_is_followed_through_a_restart(running: Site) -> None:
    drop_s = dropping(2, 0.0)[1]
    with (
        running.control() as control,
        Subscriber(running.endpoints["estimates"], ["rig/elastic"]) as stream,
        Subscriber(running.endpoints["estimates"], ["rig/status"]) as statuses,
    ):
        await_message(statuses)  # both subscriptions have arrived
        control.request("start", arm="rig")
        heard: list[BodyMessage] = []

        def until(t: float) -> dict[str, Any]:
            def late(message: object) -> bool:
                assert isinstance(message, BodyMessage)
                heard.append(message)
                return message.envelope.t_ns * 1e-9 >= t

            await_message(stream, late)
            return elbow(heard[-1])

        first = until(0.2)
        assert first["row_t"] is None
        for p in first["parameters"].values():
            assert (p["value"], p["std"], p["status"]) == (None, None, "undetermined")
            assert p["reason"] == "no row has shown it yet"
        assert not first["valid"]
        before = until(drop_s - 0.3)
        assert before["valid"]
        assert not before["changing"]
        held(before, 1.0)
        assert 0.0 < drop_s - before["row_t"] < 1.5
        after = until(drop_s + 3.0)
        assert after["changing"]
        assert {p["status"] for p in after["parameters"].values()} <= {"doubtful", "undetermined"}
        name = "rig/estimator"
        pid = drained(control, name)[name]["pid"]
        last = control.request("snapshot", arm="rig")["elastic"]["elbow"]
        assert not last["changing"]
        held(last, DROP)
        assert last["innovation"].keys() == {"motor", "sensor"}
        os.kill(pid, signal.SIGKILL)
        assert drained(control, name, besides=pid)[name]["info"]["resumed"] is True
        resumed = control.request("snapshot", arm="rig")["elastic"]["elbow"]
        for key in ("parameters", "updates", "frames", "valid", "changing"):
            assert resumed[key] == last[key], key
        steps = [b.envelope.t_ns - a.envelope.t_ns for a, b in pairwise(heard)]
        assert 0.09e9 < sorted(steps)[len(steps) // 2] < 0.11e9  # 10 a second

        control.request("reset_estimator", arm="rig")
        forgotten = control.request("snapshot", arm="rig")["elastic"]["elbow"]
        assert forgotten["parameters"]["k1"]["value"] is None
        assert forgotten["updates"] == 0
    assert "elastic_state_ignored" not in log_lines(running.path)
