"""Trial of a cycle: how late a loop that only sleeps wakes; in a process of its own, as settings cannot be undone."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from drivers.timing import sleep_until
from service.config.arm_tables import RealtimeConfig
from service.doctor._needs import Loop
from service.doctor.finding import Finding, failed_or_warning
from service.worker.realtime import apply_realtime

#: Limits, as shares of a cycle. After waking a loop takes up to 0.4 of a cycle of 1 ms with nine drives
#: (docs/decisions/0017): if it wakes more than half a cycle late, its frame is not back in time.
GOOD, LATE = 0.1, 0.5
#: Share of late cycles above which the verdict is `failed`.
MANY = 1e-3
_REPORT_S = 0.5
_GRACE_S = 60.0


class CycleError(RuntimeError):
    """The trial could not be run."""


@dataclass(frozen=True)
class CycleResult:
    """Lateness of a loop [µs], and the settings that were refused."""

    cycles: int  # including skipped ones
    period_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    late: int  # cycles that began more than half a cycle late, or were skipped
    refused: tuple[str, ...]


def try_cycle(
    settings: RealtimeConfig, period_ns: int, cycles: int, report: Callable[[int], None] = lambda _done: None
) -> CycleResult:
    """Run `cycles` cycles of `period_ns` in this process, which keeps the settings.

    A skipped cycle is as late as the next one that begins.
    """
    lateness_ns = np.zeros(cycles)
    refused = apply_realtime(settings)
    now_ns = time.monotonic_ns
    every = max(1, int(_REPORT_S * 1e9 / period_ns))
    deadline_ns = now_ns() + period_ns
    done = next_report = 0
    while done < cycles:
        sleep_until(deadline_ns)
        late_ns = now_ns() - deadline_ns
        lateness_ns[done] = late_ns
        # A missed deadline is skipped, not made up for.
        passed = late_ns // period_ns
        if passed:
            lost = lateness_ns[done + 1 : done + 1 + passed]
            lost[:] = period_ns * (passed - np.arange(len(lost)))
        deadline_ns += period_ns * (1 + passed)
        done += 1 + passed
        if done >= next_report:
            report(min(done, cycles))
            next_report = done + every
    p50, p99, p999 = np.percentile(lateness_ns, (50.0, 99.0, 99.9)) * 1e-3
    late = int(np.count_nonzero(lateness_ns > LATE * period_ns))
    largest = float(lateness_ns.max()) * 1e-3
    return CycleResult(cycles, period_ns * 1e-3, float(p50), float(p99), float(p999), largest, late, tuple(refused))


def try_in_process(loop: Loop, seconds: float) -> CycleResult:
    """Run the trial of a loop's cycle for `seconds` in a process of its own; progress goes to stderr.

    Raises `CycleError`: the process ended without a result.
    """
    period_ns = round(1e9 / loop.cycle_hz)
    asked = {"period_ns": period_ns, "cycles": max(1, round(seconds * loop.cycle_hz))}
    command = [sys.executable, "-m", "service.doctor.cycle", json.dumps(asked), loop.realtime.model_dump_json()]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=seconds + _GRACE_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise CycleError(f"the cycle could not be tried: {error}") from error
    found = json.loads(done.stdout)
    return CycleResult(**{**found, "refused": tuple(found["refused"])})


def judge_cycle(result: CycleResult, arm: str | None) -> Finding:
    """Return the finding; without an arm that keeps a cycle at most a warning."""
    period = result.period_us
    value = (
        f"{arm + ': ' if arm else ''}woke late by {result.p50_us:.0f} µs (median), {result.p99_us:.0f} (99 %), "
        f"{result.p999_us:.0f} (99.9 %), {result.max_us:.0f} at most; {result.late} of {result.cycles} cycles of "
        f"{period:g} µs by more than {LATE * period:g}"
    )
    if result.refused:
        value += f"; refused: {'; '.join(result.refused)}"
        remedy = "the cycle was tried without it: give the daemon what [arm.realtime] asks for, or ask for less"
        return Finding("cycle", failed_or_warning(arm is not None), value, remedy)
    if result.p999_us <= GOOD * period and result.max_us <= LATE * period:
        return Finding("cycle", "ok", value)
    remedy = "correct the items above: a priority, an isolated processor, PREEMPT_RT; then try longer"
    return Finding("cycle", failed_or_warning(result.late > MANY * result.cycles and bool(arm)), value, remedy)


def main() -> None:
    """Run the trial given by the arguments, and print the result as JSON on stdout."""
    asked, settings = json.loads(sys.argv[1]), RealtimeConfig.model_validate_json(sys.argv[2])
    cycles = int(asked["cycles"])

    def report(done: int) -> None:
        sys.stderr.write(f"\rcycle: {done * 100 // cycles} %")
        sys.stderr.flush()

    watched = sys.stderr.isatty()
    result = try_cycle(settings, int(asked["period_ns"]), cycles, report if watched else lambda _done: None)
    if watched:
        sys.stderr.write("\r\033[K")
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
