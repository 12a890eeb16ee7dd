"""What commands that move an arm share: staying with it, recording it, and saying how it ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from service.cli._common import EXIT_INTERRUPTED, EXIT_NO, EXIT_OK, CliError, fail
from service.cli.motion._arm_recording import ArmRecording
from service.protocol.endpoints import ANSWER_S

if TYPE_CHECKING:
    from service.client import Control

Progress = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Stayed:
    """How a motion ended.

    Attributes
    ----------
    done : mapping
        What the arm said of it last: number, outcome, reason, times.
    reason : str
        Why it ended.
    code : int
        Exit code of the command: whatever is done with the recording afterwards does not change it.
    path : str
        File of the recorder; empty without one.
    """

    done: Mapping[str, Any]
    reason: str
    code: int
    path: str


def stay(
    control: Control,
    arm: str,
    what: Literal["run", "guiding"],
    recording: ArmRecording,
    act: Callable[[Progress], dict[str, Any]],
    show: Progress,
) -> Stayed:
    """Move the arm by `act`, which calls back with what the arm says, and end the recording whatever happens.

    Raises
    ------
    ControlError, UnreachableError
        As `act`.
    CliError
        Interrupted before the daemon has taken the request.
    """
    from service.client import ControlError, UnreachableError

    last: Mapping[str, Any] = {}

    def on_progress(said: Mapping[str, Any]) -> None:
        nonlocal last
        last = said
        show(said)

    code = EXIT_OK
    try:
        last = act(on_progress)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
        number = last[what]["number"] if last else None
        with contextlib.suppress(ControlError, UnreachableError):  # it has been aborted: this asks what came of it
            said = control.request("abort", ANSWER_S, arm=arm)
            if number is not None and said[what] is not None and said[what]["number"] == number:
                last = said
        path = recording.end()
    except BaseException:
        path = recording.end()
        if last and path:
            fail(f"what was recorded until then: {path}")
        raise
    else:
        path = recording.end()
    if not last:  # the daemon has not taken it
        raise CliError("interrupted before anything was begun", EXIT_INTERRUPTED)
    done = last[what]
    if code == EXIT_OK and done["outcome"] != "completed":
        code = EXIT_NO
    return Stayed(done, done["reason"] or last["reason"], code, path)
