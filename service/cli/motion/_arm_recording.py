"""The recorder of an arm, for the time that a command moves the arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.cli._common import fail
from service.protocol.endpoints import ANSWER_S

if TYPE_CHECKING:
    from service.client import Control


class ArmRecording:
    """An arm's recorder, started for a motion unless it records already; makes its requests when made."""

    def __init__(self, control: Control, arm: str, *, wanted: bool) -> None:
        self._control, self._arm = control, arm
        status = control.request("status", ANSWER_S)
        found = {process["name"]: process for process in status["processes"]}
        recorder = found.get(f"{arm}/recorder")
        state = None if recorder is None else recorder["info"].get("state")
        self.started = wanted and state == "off"
        #: There is something to identify.
        self.made = wanted and state is not None
        if wanted and recorder is None and arm in status["arms"]:
            fail(f"{arm}: is not recorded: add the table [arm.recorder] to its configuration")
        self._path = "" if recorder is None or self.started else str(recorder["info"].get("path", ""))
        if self.started:
            control.request("record", ANSWER_S, arm=arm, action="start")

    def end(self) -> str:
        """Stop the recorder if it was started for this; returns the file.

        A recorder that does not answer is told of on stderr: how the motion ended counts for more.
        """
        from service.client import ControlError, UnreachableError

        if not self.started:
            return self._path if self.made else ""
        try:
            return str(self._control.request("record", ANSWER_S, arm=self._arm, action="stop")["path"])
        except (ControlError, UnreachableError) as error:
            fail(f"{self._arm}: the recorder was not stopped: {error}")
            return ""
