"""A cycle that is tried: what its process gets, and what its lateness means."""

import dataclasses
import os

import pytest

from service.config.arm_tables import RealtimeConfig
from service.doctor._needs import Loop
from service.doctor.cycle import CycleError, CycleResult, judge_cycle, try_cycle, try_in_process

WELL = CycleResult(5000, 1000.0, 5.0, 20.0, 90.0, 450.0, 0, ())


@pytest.mark.parametrize(
    ("changes", "arm", "verdict"),
    [
        ({}, "arm", "ok"),
        ({"p999_us": 101.0}, "arm", "warning"),
        ({"max_us": 501.0, "late": 1}, "arm", "warning"),
        ({"p999_us": 600.0, "max_us": 900.0, "late": 6}, "arm", "failed"),
        ({"p999_us": 600.0, "max_us": 900.0, "late": 5}, "arm", "warning"),
        ({"p999_us": 600.0, "max_us": 900.0, "late": 6}, None, "warning"),  # nobody keeps a cycle here
        # The limits are shares of the cycle: at 250 Hz the same lateness is little.
        ({"p999_us": 390.0, "max_us": 1900.0, "period_us": 4000.0}, "arm", "ok"),
    ],
)
def test_verdicts(changes: dict[str, float], arm: str | None, verdict: str) -> None:
    assert judge_cycle(dataclasses.replace(WELL, **changes), arm).verdict == verdict


def test_what_was_refused_is_told() -> None:
    result = dataclasses.replace(WELL, refused=("priority 80: Operation not permitted",))
    found = judge_cycle(result, "arm")
    assert (found.verdict, "refused: priority 80" in found.value) == ("failed", True)  # however well it went without
    assert "[arm.realtime]" in found.remedy
    assert judge_cycle(result, None).verdict == "warning"


def test_a_loop_in_a_process_of_its_own() -> None:
    wanted = RealtimeConfig(processors=(4095,), lock_memory=False)
    policy = os.sched_getscheduler(0)
    result = try_in_process(Loop("arm", 500.0, wanted), 0.4)
    assert (result.cycles, result.period_us) == (200, 2000.0)
    assert 0.0 <= result.p50_us <= result.p99_us <= result.p999_us <= result.max_us
    assert result.late <= 200
    assert "4095" in result.refused[0]  # what it asks for and does not get
    assert os.sched_getscheduler(0) == policy  # this process has changed nothing


class Standstills:
    """A clock for `try_cycle` that stands the loop still for some time [ns] before it wakes at given deadlines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stops: dict[int, int]) -> None:
        import service.doctor.cycle as cycle

        self.now, self.stops, self.woken = 0, stops, list[int]()
        monkeypatch.setattr(cycle, "apply_realtime", lambda settings: [])
        monkeypatch.setattr(cycle, "sleep_until", self.sleep)
        monkeypatch.setattr(cycle.time, "monotonic_ns", lambda: self.now)

    def sleep(self, deadline_ns: int) -> None:
        self.now = max(self.now, deadline_ns) + self.stops.get(deadline_ns, 0)
        self.woken.append(deadline_ns)


def test_a_deadline_that_has_passed_is_not_made_up_for_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop of 10.2 ms in the third cycle: that is late, and ten more never began."""
    clock = Standstills(monkeypatch, {3_000_000: 10_200_000})
    told: list[int] = []
    result = try_cycle(RealtimeConfig(), 1_000_000, 16, told.append)
    assert clock.woken == [1_000_000, 2_000_000, 3_000_000, 14_000_000, 15_000_000, 16_000_000]
    assert (result.cycles, result.late, result.max_us) == (16, 11, 10_200.0)
    assert result.p50_us == 3500.0  # five on time; those that were lost are 1, 2, ... 10 ms late
    assert told == [1]
    # A stop that lasts beyond the last cycle.
    clock = Standstills(monkeypatch, {3_000_000: 10_200_000})
    result = try_cycle(RealtimeConfig(), 1_000_000, 6)
    assert (result.cycles, result.late, len(clock.woken)) == (6, 4, 3)


def test_a_process_that_ends_without_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(CycleError, match="could not be tried"):
        try_in_process(Loop("arm", 1000.0, RealtimeConfig()), 0.01)
