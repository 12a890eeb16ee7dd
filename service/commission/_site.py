"""One arm of a daemon for commissioning: frames at rest, recorded motions (`service.client.Runs`), jobs."""

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.atomic_write import write_bytes, write_text
from drivers.files.recordings.recording import Recording, RecordingError, read_recording
from drivers.frame import CHANNELS, JointFrame
from rt_core.types import FloatArray, IntArray
from service import client
from service.commission.errors import CommissionError, StepFailedError
from service.io.trajectory_file import Trajectory
from service.protocol.endpoints import ANSWER_S
from service.protocol.job_replies import JobDetail

#: Permit time beyond the trajectory itself, for the checks and the approach [s].
SPARE_S = 90.0
#: Longest wait for drives that are stopping, or an estimator that is not ready.
_READY_S = 60.0
_FRAME_S = 5.0
#: Longest wait for the source's metadata, which is sent every second.
_META_S = 3.0
#: Temporary refusals of a permit, as long as nobody else moves the arm.
_PASSING = ("still stopping", "in state 'stopping'", "is under way", "waits for its estimator")

Make = Callable[[FloatArray, FloatArray], Trajectory]
Follow = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Frames:
    """Frames as arrays: times (N,) [s], counts (N,), channels (N, n), and the source's nominal rate, 0 if unknown."""

    t: FloatArray
    seq: IntArray
    channels: dict[str, FloatArray]
    rate_hz: float = 0.0


@dataclass(frozen=True)
class Move:
    """A recorded motion; `stopped` is the reason of an early end, otherwise empty."""

    path: Path
    stopped: str

    def recording(self) -> Recording:
        """Read the recording; raises `StepFailedError` if that fails."""
        try:
            return read_recording(self.path)
        except RecordingError as error:
            raise StepFailedError(f"what was recorded cannot be read: {error}") from error

    def check(self, what: str, found: dict[str, Any]) -> None:
        """Raise `StepFailedError` with the results in `found`, if the motion was stopped."""
        if self.stopped:
            raise StepFailedError(f"{what} was stopped: {self.stopped}", found)


class Site:
    """An arm of a running daemon; `arm` is optional where there is only one. `CommissionError`: none, or no recorder.

    `drives` is the SHA-256 of `[arm.driver]`: counts, gears and signs are unchanged as long as it is the same.
    `journal` holds the owner of a recording in progress, to recognise one's own after a kill.
    """

    def __init__(self, control: client.Control, arm: str | None = None) -> None:
        self.control = control
        status = control.request("status", ANSWER_S)
        arms = status["arms"]
        if arm is None and len(arms) > 1:
            raise CommissionError(f"the daemon has several arms: name one by --arm: {', '.join(arms)}")
        if arm is not None and arm not in arms:
            raise CommissionError(f"the daemon has no arm {arm!r}; it has {', '.join(arms)}")
        self.arm: str = arm or arms[0]
        self._frames = str(status["daemon"]["endpoints"]["frames"])
        if not any(process["name"] == f"{self.arm}/recorder" for process in status["processes"]):
            text = f"arm {self.arm} is not recorded: add [arm.recorder] with enabled = false to its configuration"
            raise CommissionError(text)
        if "configuration" not in status:
            raise CommissionError("the daemon is of an earlier version than this command: restart it")
        configured = status["configuration"][self.arm]
        self.drives, self.permit_max_s = str(configured["driver_sha256"]), float(configured["permit_max_s"])
        self._runs = client.Runs(control, self.arm)
        self._recorded = False
        self.journal: Path | None = None
        self.jobs = client.Jobs(control)

    def robot_text(self) -> str:
        """Return the description of the arm's robot as JSON text."""
        return str(self.control.request("robot", ANSWER_S, arm=self.arm)["robot"])

    # ------------------------------------------------------------ at rest

    def rest(self, seconds: float) -> Frames:
        """Receive frames for so long by their own clock (a daemon that compiles sends few); `StepFailedError`: none."""
        topics = [f"{self.arm}/frame", f"{self.arm}/meta"]
        with client.Subscriber(self._frames, topics, _FRAME_S, key=self.control.key) as stream:
            frames: list[JointFrame] = []
            rate_hz = 0.0
            until = time.monotonic() + seconds + _READY_S
            try:
                while time.monotonic() < until:
                    message = stream.receive()
                    if isinstance(message, client.BodyMessage):
                        rate_hz = float(message.body["rate_hz"])
                    elif isinstance(message, client.FrameMessage):
                        frames.append(message.frame)
                        since_s = 1e-9 * (frames[-1].t_bus_ns - frames[0].t_bus_ns)
                        if since_s >= (seconds if rate_hz else seconds + _META_S):
                            break
            except client.ClientTimeoutError as error:
                text = f"no frames of {self.arm} come: `thetad status` says what it waits for"
                raise StepFailedError(text) from error
        return _arrays(frames, rate_hz)

    def where(self) -> tuple[FloatArray, FloatArray]:
        """Return the set position (n,) of the drives, and the measured position (n,)."""
        with client.Subscriber(self._frames, [f"{self.arm}/frame"], _FRAME_S, key=self.control.key) as stream:
            try:
                while True:
                    message = stream.receive()
                    if isinstance(message, client.FrameMessage) and (q := message.frame.q) is not None:
                        return q if message.frame.setpoint is None else message.frame.setpoint, q
            except client.ClientTimeoutError as error:
                raise StepFailedError(f"no frames of {self.arm} come") from error

    # ------------------------------------------------------------ motion

    def move(
        self, make: Make, for_s: float, *, periods: int = 1, name: str = "", on_progress: Follow | None = None
    ) -> Move:
        """Arm, run a trajectory of `for_s` [s] over all its periods, and record it under `name`.

        `make` takes the drives' set position (n,) and the measured one (n,), and returns the trajectory.
        `StepFailedError`: refused; nothing has moved.
        """
        self._check_recorder()
        for last in (False, True):
            try:
                report, path = self._attempt(make, for_s, periods, name, on_progress)
                break
            except client.ControlError as error:
                if error.type != "timeout" or last:  # no reply in time, and nothing has moved: retry once
                    text = error.message.removeprefix("run_trajectory: ")
                    raise StepFailedError(f"{name}: refused: {text}") from error
        run = report["run"] or {}
        stopped = "" if run.get("outcome") == "completed" else str(run.get("reason") or report["reason"] or "stopped")
        if not path:
            raise StepFailedError(f"{name}: nothing was recorded: `thetad status` says what the recorder is doing")
        return Move(Path(path), stopped)

    def _attempt(
        self, make: Make, for_s: float, periods: int, name: str, on_progress: Follow | None
    ) -> tuple[dict[str, Any], str]:
        """Arm, run and record once; return the report of the run (stopped, if lost in the middle) and the recording."""
        report: dict[str, Any] = {"run": None, "reason": ""}

        def follow(now: Mapping[str, Any]) -> None:
            report.update(now)
            if on_progress is not None:
                on_progress(now)

        permit = self._permit(for_s + SPARE_S)
        try:
            trajectory = make(*self.where())
            self._begin_recording()
            try:
                report = self._runs.run(trajectory.as_message(), permit, periods=periods, name=name, on_progress=follow)
            except client.ControlError as error:
                # the first heartbeat of a checked run starts it, even if its reply is lost
                if (report["run"] or {}).get("outcome") in (None, "refused"):
                    raise
                self._disarm()
                report = {"run": None, "reason": error.message}
            finally:
                path = self._end_recording()
        except BaseException:
            self._disarm()
            raise
        return report, path

    def _permit(self, for_s: float) -> str:
        """Request a permit, repeatedly while drives are stopping, but not while somebody else moves the arm."""
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                return self._runs.arm(for_s)
            except client.ControlError as error:
                if error.type == "timeout":  # a late reply may still have switched the drives on
                    self._disarm()
                passes = error.type == "unavailable" and any(words in error.message for words in _PASSING)
                if not passes or time.monotonic() > deadline:
                    raise StepFailedError(error.message) from error
            except BaseException:
                self._disarm()
                raise
            time.sleep(0.2)

    def _disarm(self) -> None:
        with contextlib.suppress(client.ControlError, client.UnreachableError):
            self._runs.disarm()

    def _check_recorder(self) -> None:
        """Check before the first motion that nobody else records."""
        if self._recorded:
            return
        self._recorded = True
        noted = self._noted()
        status = self.control.request("status", ANSWER_S)
        found = next(p for p in status["processes"] if p["name"] == f"{self.arm}/recorder")
        if found["info"].get("state") in ("on", "recording"):
            if noted and noted == found["info"].get("owner"):  # an earlier call, which was killed
                self._end_recording()
                return
            text = f"the recorder of {self.arm} is on already: `thetad record stop --arm {self.arm}` ends that"
            raise StepFailedError(text)

    def _noted(self) -> str:
        """Return the owner of a recording that this commissioning has not ended."""
        if self.journal is None or not self.journal.exists():
            return ""
        return self.journal.read_text(encoding="utf-8").strip()

    def _begin_recording(self) -> None:
        owner = secrets.token_hex(8)
        if self.journal is not None:  # before the start: a kill in between leaves a note without a recording
            write_text(self.journal, owner + "\n")
        self._record("start", owner=owner)

    def _end_recording(self) -> str:
        try:
            path = self._record("stop")
        except client.ControlError as error:
            raise StepFailedError(f"the recorder of {self.arm} does not end: {error.message}") from error
        if self.journal is not None:
            self.journal.unlink(missing_ok=True)
        return path

    def _record(self, action: str, **more: str) -> str:
        return str(self.control.request("record", ANSWER_S, arm=self.arm, action=action, **more)["path"])

    # ------------------------------------------------------------ jobs

    def job(
        self, kind: str, parameters: Mapping[str, Any], on_progress: Callable[[JobDetail], None] | None = None
    ) -> JobDetail:
        """Queue a job of the arm and wait for it; cancel it if interrupted; `StepFailedError` unless it succeeds."""
        try:
            id = self.jobs.submit(kind, parameters, arm=self.arm).id
        except client.ControlError as error:
            raise StepFailedError(f"{kind}: {error.message}") from error
        try:
            job = self.jobs.wait(id, on_progress=on_progress)
        except KeyboardInterrupt:
            with contextlib.suppress(client.ControlError):
                self.jobs.cancel(id)
            raise
        if job.state != "succeeded" and job.outcome is None:
            raise StepFailedError(f"{kind}: job {id} {job.state}: {job.reason}")
        return job


def fetch(job: JobDetail, folder: Path) -> dict[str, Path]:
    """Copy the results of a job into `folder`, checked by hash, or `StepFailedError`; return them by name."""
    results = {} if job.outcome is None else job.outcome.results
    for name, entry in results.items():
        try:
            content = Path(entry.path).read_bytes()
        except OSError as error:
            raise StepFailedError(f"{entry.path}: result {name} cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise StepFailedError(f"{entry.path}: result {name} is damaged: `thetad jobs retry {job.id}`")
        write_bytes(folder / name, content)
    return {name: folder / name for name in results}


def _arrays(frames: list[JointFrame], rate_hz: float) -> Frames:
    if not frames:
        raise StepFailedError("no frames came")
    first = frames[0]
    channels = {
        name: np.array([getattr(frame, name) for frame in frames], dtype=np.float64)
        for name in CHANNELS
        if all(getattr(frame, name) is not None for frame in frames)
    }
    t_ns = np.array([frame.t_bus_ns - first.t_bus_ns for frame in frames], dtype=np.int64)
    seq = np.array([frame.seq for frame in frames], dtype=np.int64)
    return Frames(np.asarray(t_ns * 1e-9, dtype=np.float64), seq, channels, rate_hz)
