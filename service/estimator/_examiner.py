"""Examinations of an arm's own recent frames: when, of which, and what is done with the result."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from drivers.files.recordings.format import RecordingMeta
from drivers.files.robots.file import RobotFile
from rt_core.online import OnlineEstimator
from rt_core.online.monitors.examination import Examination, ExaminationTimes
from service.estimator._frame_buffer import FrameBuffer, SaveRequest
from service.estimator._frame_consumer import FrameConsumer
from service.io.log import Log
from service.worker.thread_limits import SINGLE_THREADED

_LIMIT_S = 600.0  # on a machine that has no time for it
_Found = tuple[Examination, dict[str, float]]  # and what it took


class Examiner(FrameConsumer):
    """Has the frames since the estimate began examined when it is time, and hands the result to the estimator.

    Estimator, robot and buffer are the arm's. `window` is the file by which frames are passed on, there while they are
    examined: of all arms whose files are in one folder, one is examined at a time. `log` takes each result, and why
    there is none.
    """

    def __init__(
        self, estimator: OnlineEstimator, robot: RobotFile, buffer: FrameBuffer, window: Path, log: Log
    ) -> None:  # fmt: skip
        self._estimator, self._buffer, self._window, self._log = estimator, buffer, window, log
        self._robot = json.dumps(robot.source)
        self._times = ExaminationTimes()
        self._times.restart(estimator.trust.motion_s)
        self._pool = ThreadPoolExecutor(1, "examiner")
        self._process: subprocess.Popen[str] | None = None
        self._running: Future[_Found] | None = None
        self._estimate = (0, 0)  # that is examined

    def restart_stream(self) -> None:
        """Leave out frames from before: the clock is another one."""
        self._times.restart(self._estimator.trust.motion_s)

    def poll(self, t_ns: int, meta: Callable[[], RecordingMeta], *, suppressed: bool) -> None:
        """Take a result, or begin; `t_ns` is the time of the latest frame, `suppressed` whether it tells nothing."""
        trust, running = self._estimator.trust, self._running
        believed = not (trust.doubted or suppressed or running is not None or not len(self._buffer))
        due = self._times.due(trust.motion_s, t_ns, believed=believed)
        if running is not None and running.done():
            self._running = None
            if (error := running.exception()) is not None:
                self._log.info("not_examined", reason=f"{type(error).__name__}: {error}")
            elif self._estimate == (trust.generation, self._times.from_ns):
                found, about = running.result()
                self._estimator.take_examination(found)
                self._log.info("examined", found=found.text, **about)
        elif due:
            settings = self._estimator.settings
            frames = self._buffer.since(self._times.begin_ns(t_ns, self._estimator.rate_hz))
            asked = SaveRequest(frames, self._window, meta(), self._buffer.truncations)
            task = {
                "window": str(self._window), "robot": self._robot, "parent": os.getpid(),
                "cutoff_hz": settings.cutoff_hz, "min_velocity": settings.min_velocity,
                "shape": self._estimator.base.layout.shape.tolist(),
            }  # fmt: skip
            self._estimate = trust.generation, self._times.from_ns
            try:
                self._running = self._pool.submit(self._examine, asked, task)
            except RuntimeError as error:  # no thread can be started
                self._log.info("not_examined", reason=str(error))

    def _examine(self, asked: SaveRequest, task: Mapping[str, Any]) -> _Found:
        """Write the frames and examine them in another process; in a thread of its own."""
        command, pipe = [sys.executable, "-m", "service.estimator.examination_process"], subprocess.PIPE
        try:
            until_ns = asked.write(self._buffer)["t_ns"][1]
            with subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **SINGLE_THREADED}, text=True
            ) as process:
                self._process = process
                try:
                    out, err = process.communicate(json.dumps(task), timeout=_LIMIT_S)
                finally:
                    process.kill()
        finally:
            self._window.unlink(missing_ok=True)
        if process.returncode:
            raise RuntimeError(err[-2000:] or f"ended with {process.returncode}")
        about = json.loads(out)
        if "reason" in about:
            raise RuntimeError(about["reason"])
        found = Examination.restored(about, len(self._estimator.base))
        if found.moved.tolist() != about["examined_moved"]:
            raise RuntimeError("its answer is not an examination of this arm")
        return replace(found, until_s=1e-9 * until_ns), {key: float(about[key]) for key in ("seconds", "cpu_s")}

    def close(self) -> None:
        """End an examination that is running."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while self._running is not None and not self._running.done():
            if self._process is not None:
                self._process.kill()
            time.sleep(0.01)
