"""Samples of `/metrics`, made from the cache on request, of the families in `metric_families.toml`.

Counters are those of the counting processes: after a restart they begin at 0, which Prometheus handles. Otherwise they
never decrease. Names follow Prometheus' conventions: base units, counters end in `_total`. Labels have few values:
names of arms, joints and processes, and words of short lists. `docs/metrics.md` has the list.
"""

import math
import platform
import re
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from service.protocol.job_replies import State
from service.web._cache import Arm, Cache
from service.web._health import arm_states, daemon_problem, estimate_age_s

_VERSION = version("thetad")  # once, because it reads files
_SOURCE_STATES = ("held", "waiting", "running", "ended")
_PARAMETER_STATUS = ("unestimated", "estimated", "invalid", "stale", "frozen", "doubted", "starved")
_MAKERS: Mapping[str, Callable[..., Metric]] = {
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip
#: A parameter's name ends in the number of its joint or link, from 1.
_JOINT = re.compile(r"(\d+)$")


@dataclass(frozen=True)
class Family:
    """One family; `name` is that of its samples, without the suffixes of a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


#: In the order of the output.
FAMILIES = tuple(
    Family(name, row["kind"], tuple(row["labels"]), row["help"])
    for name, row in tomllib.loads(Path(__file__).with_name("metric_families.toml").read_text(encoding="utf-8")).items()
)


class Samples:
    """Families of one response, filled sample by sample."""

    def __init__(self) -> None:
        self.families: dict[str, Any] = {
            family.name: _MAKERS[family.kind](family.name, family.help, labels=family.labels) for family in FAMILIES
        }

    def add(self, name: str, value: object, *labels: str) -> None:
        """Add a sample to a counter or gauge; unknown values (None) are left out."""
        if value is not None:
            self.families[name].add_metric(labels, float(value))  # type: ignore[arg-type]

    def add_durations(self, name: str, found: Mapping[str, Any] | None, *labels: str) -> None:
        """Add a report of `service.worker.loop_statistics.Durations` to a histogram."""
        if found is None:
            return
        total, buckets = 0, []
        for bound_us, count in zip([*found["bounds_us"], math.inf], found["counts"], strict=True):
            total += count
            buckets.append(("+Inf" if math.isinf(bound_us) else f"{bound_us * 1e-6:.9g}", total))
        self.families[name].add_metric(labels, buckets, found["sum_us"] * 1e-6)


class DaemonCollector(Collector):
    """Collector of all samples from the cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        """Yield every family, also those without samples."""
        samples, now_ns = Samples(), time.monotonic_ns()
        cache = self._cache
        samples.add("thetad_build_info", 1, _VERSION, platform.python_version())
        samples.add("thetad_supervisor_silence_seconds", cache.silence_s(now_ns))
        down = bool(daemon_problem(cache, now_ns))
        for state in arm_states(cache, now_ns):
            samples.add("thetad_arm_ready", state.ready and not down, state.arm)
        if cache.status.daemon:
            self._daemon(samples)
        for process in cache.status.processes:
            _process(samples, process, cache.silence_s(now_ns))
        for arm in cache.arms.values():
            _frames(samples, cache, arm)
            _loop(samples, arm.name, arm.status.get("acquisition", {}))
            _estimator(samples, cache, arm, now_ns)
            _recorder(samples, arm.name, cache.info(arm.name, "recorder"))
        yield from samples.families.values()

    def _daemon(self, samples: Samples) -> None:
        daemon, control = self._cache.status.daemon, self._cache.status.control
        samples.add("thetad_uptime_seconds", daemon["uptime_s"])
        samples.add("thetad_ready", daemon["ready"])
        _usage(samples, "supervisor", daemon["usage"])
        for kind, count in sorted(self._cache.status.events.items()):
            samples.add("thetad_events_total", count, kind)
        samples.add("thetad_control_requests_total", control["requests"])
        samples.add("thetad_control_refused_total", control["garbage"])


def make_registry(cache: Cache) -> CollectorRegistry:
    """Return a registry with the daemon's metrics only, without defaults of this process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(DaemonCollector(cache))
    return registry


def _usage(samples: Samples, name: str, found: Mapping[str, Any]) -> None:
    samples.add("thetad_process_cpu_seconds_total", found.get("cpu_s"), name)
    samples.add("thetad_process_resident_memory_bytes", found.get("resident_bytes"), name)
    samples.add("thetad_process_open_fds", found.get("open_fds"), name)
    samples.add("thetad_process_max_fds", found.get("max_fds"), name)


def _process(samples: Samples, process: Mapping[str, Any], age_s: float) -> None:
    name, info, silent_s = process["name"], process["info"], process["silent_s"]
    samples.add("thetad_process_up", process["state"] == "ready", name)
    samples.add("thetad_process_restarts_total", process["restarts"], name)
    samples.add("thetad_process_silence_seconds", None if silent_s is None else silent_s + age_s, name)
    _usage(samples, name, info.get("usage", {}))
    if process["role"] == "gateway":
        for stream, count in info.get("connections", {}).items():
            samples.add("thetad_gateway_connections", count, stream)
    elif process["role"] == "jobs" and "state" in info:
        samples.add("thetad_jobs_stuck", bool(info["trouble"]))
        for kind, states in sorted(info["by_kind"].items()):
            for state in get_args(State):
                samples.add("thetad_jobs", states.get(state, 0), kind, state)


def _frames(samples: Samples, cache: Cache, arm: Arm) -> None:
    info = cache.info(arm.name, "acquisition")
    if "state" in info:
        for state in _SOURCE_STATES:
            samples.add("thetad_source_state", info["state"] == state, arm.name, state)
    samples.add("thetad_frames_published_total", info.get("frames"), arm.name)
    samples.add("thetad_frames_dropped_total", info.get("dropped"), arm.name)
    samples.add("thetad_frame_timeouts_total", arm.status.get("acquisition", {}).get("timeouts"), arm.name)
    for role in ("estimator", "recorder"):
        found = cache.info(arm.name, role)
        if "received" not in found:
            continue
        for key in ("received", "lost", "repeated"):
            samples.add(f"thetad_frames_{key}_total", found[key], arm.name, role)
        samples.add("thetad_frames_refused_total", found["invalid"] + found["foreign"], arm.name, role)
        samples.add("thetad_source_epochs_total", found["epochs"], arm.name, role)


def _loop(samples: Samples, arm: str, status: Mapping[str, Any]) -> None:
    loop, source = status.get("loop"), status.get("source", {})
    if loop is not None:
        samples.add("thetad_loop_nominal_period_seconds", loop["nominal_us"] * 1e-6, arm)
        samples.add_durations("thetad_loop_period_seconds", loop["period"], arm)
        samples.add_durations("thetad_loop_execution_seconds", loop["execution"], arm)
        samples.add("thetad_loop_overruns_total", loop["overruns"], arm)
    samples.add("thetad_bus_lost_cycles_total", source.get("lost_cycles"), arm)
    samples.add("thetad_bus_recoveries_total", source.get("recoveries", source.get("reconnects")), arm)


def _estimator(samples: Samples, cache: Cache, arm: Arm, now_ns: int) -> None:
    info, stats = cache.info(arm.name, "estimator"), arm.stats.get("estimator")
    samples.add("thetad_frames_unusable_total", info.get("unusable"), arm.name)
    if "save_error" in info:
        samples.add("thetad_state_unsaved", bool(info["save_error"]), arm.name)
    for joint, state in info.get("drift", {}).get("joints", {}).items():
        samples.add("thetad_joint_drifted", state == "drifted", arm.name, joint)
    if stats is not None:
        samples.add("thetad_estimator_updates_total", stats["updates"], arm.name)
        samples.add("thetad_estimator_step_mean_seconds", stats["step_mean_us"] * 1e-6, arm.name)
        samples.add("thetad_estimator_step_max_seconds", stats["step_max_us"] * 1e-6, arm.name)
        samples.add_durations("thetad_estimate_latency_seconds", stats["latency"], arm.name)
    samples.add("thetad_estimate_age_seconds", estimate_age_s(arm, now_ns), arm.name)
    estimate, meta = arm.estimate, arm.meta.get("estimator")
    if estimate is None or meta is None:
        return
    joints: Sequence[str] = meta["joints"]
    for name, values in (
        ("thetad_joint_innovation", estimate.innovation),
        ("thetad_joint_innovation_sigma", estimate.sigma),
        ("thetad_joint_forgetting_factor", estimate.lam),
    ):
        for joint, value in zip(joints, values.tolist(), strict=False):
            samples.add(name, value, arm.name, joint)
    counts = Counter(zip((joint_of(name) for name in meta["parameters"]), estimate.status, strict=False))
    for number, joint in enumerate(joints):
        for status in _PARAMETER_STATUS:
            samples.add("thetad_joint_parameters", counts[number, status], arm.name, joint, status)


def joint_of(parameter: str) -> int:
    """Return the index of the joint, link or motor that a parameter belongs to; -1 if its name has none."""
    found = _JOINT.search(parameter)
    return -1 if found is None else int(found[1]) - 1


def _recorder(samples: Samples, arm: str, info: Mapping[str, Any]) -> None:
    if "written" not in info:
        return
    samples.add("thetad_recorder_recording", info["state"] in ("on", "recording"), arm)
    samples.add("thetad_recorder_failed", bool(info["error"]), arm)
    samples.add("thetad_recorder_frames_total", info["written"], arm)
    samples.add("thetad_recorder_bytes_total", info["bytes"], arm)
    samples.add("thetad_recorder_files_total", info["files"], arm)
