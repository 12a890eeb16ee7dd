"""Estimates over time with events, and a recording averaged over its periods."""

import re
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import RecordingMeta, RecordingWriter, read_recording
from drivers.frame import JointFrame
from rt_core.identification.preprocess import DataError
from service.operations.identify import average_recording
from service.operations.trend import MAX, Trend
from service.protocol.messages import BodyMessage, Envelope, EstimateMessage
from service.reports.trend import trend_page
from tests.lab.command_line import thetad

NAMES = ["joint_1 fc", "joint_1 <b>", "link_2 m"]


def envelope(t: float) -> Envelope:
    return Envelope("estimator", 1, 0, round(t * 1e9), "sim", 0)


def estimate(t: float, theta: list[float], status: list[str] | None = None, hash: str = "a") -> EstimateMessage:
    p = len(theta)
    return EstimateMessage(
        arm="arm", envelope=envelope(t), theta=np.array(theta), validated=np.full(p, np.nan), std=np.full(p, 0.1),
        status=tuple(status or ["estimated"] * p), excited=np.ones(p, dtype=np.bool_), lam=np.ones(1),
        innovation=np.zeros(1), sigma=np.ones(1), delay_s=0.1, frames=1, used=1, masked=0, lost=0, resets=0, hash=hash,
    )  # fmt: skip


def body(kind: str, t: float = 0.0, **values: object) -> BodyMessage:
    return BodyMessage("arm", kind, envelope(t), dict(values))


def watched(count: int) -> Trend:
    trend = Trend()
    trend.body(body("meta", parameters=NAMES, units=["N*m", "N*m", "kg"]))
    for k in range(count):
        late = ["estimated", "estimated" if k < count // 2 else "stale", "unestimated"]
        trend.estimate(estimate(100.0 + 0.02 * k, [1.0 + k, 2.0, np.nan], late))
    return trend


def test_a_long_stream_is_thinned_evenly_and_keeps_both_ends() -> None:
    count = 5 * MAX
    t = watched(count).arrays()[0]
    assert MAX // 2 <= t.size <= MAX
    steps = np.diff(t)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    assert t[0] == 100.0
    assert t[-1] > 100.0 + 0.02 * count - 2.0 * steps[0]


def test_events_have_the_time_of_the_estimates_and_names_are_text() -> None:
    trend = watched(100)
    trend.body(body("event", 101.0, event="drift", text="joint_1 has <drifted>"))
    page = trend_page("arm", trend)
    assert re.search(r"<td>1</td><td>1\.0</td><td class=\"text\">drift</td>", page)
    assert "joint_1 has &lt;drifted&gt;" in page
    assert page.count("data:image/png;base64,") == 1
    rows = dict(re.findall(r"<tr class=\"[a-z]*\"><td class=\"text\">([^<]+)</td>(.*?)</tr>", page))
    cells = {name: re.findall(r"<td[^>]*>([^<]*)</td>", row) for name, row in rows.items()}
    assert cells["joint_1 fc [N*m]"] == ["1", "100", "0.1", "99", "estimated"]
    assert cells["joint_1 &lt;b&gt; [N*m]"] == ["2", "2", "0.1", "0", "not told by the data"]
    assert cells["link_2 m [kg]"] == ["–", "–", "–", "–", "not told by the data"]


def test_other_settings_are_an_event_and_other_parameters_a_new_beginning() -> None:
    trend = watched(10)
    trend.estimate(estimate(200.0, [1.0, 2.0, 3.0], hash="b"))
    assert (len(trend), [event.event for event in trend.events]) == (11, ["other settings"])
    trend.estimate(estimate(300.0, [1.0, 2.0], hash="c"))
    assert (len(trend), trend.restarts) == (1, 1)
    assert "arm: no estimates" in trend_page("arm", Trend())


def test_breakaway_friction_is_shown_once_it_has_a_value() -> None:
    def values(t: float, value: float | None) -> BodyMessage:
        known = {"value": value, "std": None if value is None else 0.4, "unit": "N*m"}
        status = "unestimated" if value is None else "estimated"
        return body("status", t, breakaway={"elbow": known | {"status": status}})

    trend = watched(3)
    trend.body(body("status", 1.0))  # of a daemon that does not know it
    trend.body(body("status", 2.0, breakaway={}))  # of one that has no joint to tell of
    trend.body(values(0.0, None))
    trend.body(values(0.0, 11.0))  # of an estimator that has begun again, before its first frame: of no time at all
    assert trend.breakaway is None
    assert "breakaway" not in trend_page("lab", trend)
    for k in range(4):
        trend.body(values(1.0 + k, 12.0 + k))
    assert trend.breakaway is not None
    assert trend.breakaway.arrays()[1][:, 0].tolist() == [12.0, 13.0, 14.0, 15.0]
    page = trend_page("lab", trend)
    assert "breakaway friction of elbow [N*m]" in page
    assert "<td>12</td><td>15</td>" in page


RATE_HZ, PERIOD_S, PERIODS, COUNT = 200.0, 2.0, 8, 400
NOISE = 2.0


def write(path: Path, spoilt: int | None = None) -> Path:
    """A linear axis that rests, goes to and fro eight times, and rests."""
    rng = np.random.default_rng(4)
    meta = RecordingMeta("axis", ("joint_1",), ("m",), RATE_HZ)
    with RecordingWriter(path, meta) as writer:
        for k in range(PERIODS * COUNT + 600):
            t = min(max(k / RATE_HZ - 1.0, 0.0), PERIODS * PERIOD_S)
            w = np.pi  # of a period of two seconds
            q = 0.1 * (1.0 - np.cos(w * t)) ** 2
            tau = 100.0 * q + NOISE * rng.normal()
            values = {"q": np.array([q]), "tau": np.array([tau]), "temperature": np.array([20.0 + 0.01 * k])}
            valid = np.array([k != spoilt])
            writer.write(JointFrame(k, round(k / RATE_HZ * 1e9), 0, valid=valid, **values))
    return path


def test_one_period_is_left_and_its_noise_is_small(tmp_path: Path) -> None:
    one = average_recording(read_recording(write(tmp_path / "a.mcap")), PERIOD_S)
    assert one.t.size == COUNT
    assert (np.diff(one.t_ns) > 0).all()
    assert set(one.channels) == {"q", "tau"}  # a temperature that rises is not the same in each period
    error = one.channels["tau"] - 100.0 * one.channels["q"]
    assert error.std() == pytest.approx(NOISE / np.sqrt(PERIODS), rel=0.15)
    assert np.ptp(one.channels["q"]) == pytest.approx(0.4, rel=0.01)


def test_a_sample_that_is_not_valid_is_not_averaged_over(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no numbers"):
        average_recording(read_recording(write(tmp_path / "a.mcap", spoilt=900)), PERIOD_S)


def test_the_command_refuses_a_period_that_there_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcap")
    thetad("identify", path, "--robot", "emps", "--period", 1.37).refused("no two periods of 1.37 s")
    thetad("identify", path, "--robot", "emps", "--period", -1).refused("--period: should be greater than 0")
