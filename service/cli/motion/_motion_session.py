"""Shared by commands that move an arm: supervise the motion, record it, report its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from service.cli._common import CliError, Exit, fail
from service.protocol.endpoints import ANSWER_S

if TYPE_CHECKING:
    from service.client import Control

Progress = Callable[[Mapping[str, Any]], None]


class ArmRecording:
    """Recorder of an arm for one motion; starts it when constructed, unless it records already."""

    def __init__(self, control: Control, arm: str, *, wanted: bool) -> None:
        self._control, self._arm = control, arm
        status = control.request("status", ANSWER_S)
        found = {process["name"]: process for process in status["processes"]}
        recorder = found.get(f"{arm}/recorder")
        state = None if recorder is None else recorder["info"].get("state")
        self.started = wanted and state == "off"
        #: Whether a recording is made.
        self.made = wanted and state is not None
        if wanted and recorder is None and arm in status["arms"]:
            fail(f"{arm}: is not recorded: add the table [arm.recorder] to its configuration")
        self._path = "" if recorder is None or self.started else str(recorder["info"].get("path", ""))
        if self.started:
            control.request("record", ANSWER_S, arm=arm, action="start")

    def end(self) -> str:
        """Stop the recorder if it was started here; return the file. A failure is only printed: the motion matters."""
        from service.client import ControlError, UnreachableError

        if not self.started:
            return self._path if self.made else ""
        try:
            return str(self._control.request("record", ANSWER_S, arm=self._arm, action="stop")["path"])
        except (ControlError, UnreachableError) as error:
            fail(f"{self._arm}: the recorder was not stopped: {error}")
            return ""


@dataclass(frozen=True)
class SessionResult:
    """End of a motion: last report of the arm, why it ended, exit code, and the recorder's file, empty without one."""

    done: Mapping[str, Any]
    reason: str
    code: int
    path: str


def run_session(
    control: Control, arm: str, what: Literal["run", "guiding"], recording: ArmRecording,
    act: Callable[[Progress], dict[str, Any]], show: Progress,
) -> SessionResult:  # fmt: skip
    """Move the arm by `act`, which calls back with reports; always end the recording. `CliError`: interrupted early."""
    from service.client import ControlError, UnreachableError

    last: Mapping[str, Any] = {}

    def on_progress(report: Mapping[str, Any]) -> None:
        nonlocal last
        last = report
        show(report)

    code = Exit.OK
    try:
        last = act(on_progress)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
        number = last[what]["number"] if last else None
        with contextlib.suppress(ControlError, UnreachableError):  # already aborted: this asks for the outcome
            report = control.request("abort", ANSWER_S, arm=arm)
            if number is not None and report[what] is not None and report[what]["number"] == number:
                last = report
        path = recording.end()
    except BaseException:
        path = recording.end()
        if last and path:
            fail(f"what was recorded until then: {path}")
        raise
    else:
        path = recording.end()
    if not last:  # not accepted by the daemon
        raise CliError("interrupted before anything was begun", Exit.INTERRUPTED)
    done = last[what]
    if code == Exit.OK and done["outcome"] != "completed":
        code = Exit.NO
    return SessionResult(done, done["reason"] or last["reason"], code, path)
