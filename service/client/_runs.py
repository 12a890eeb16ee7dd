"""Moving an arm of a daemon from another program; users import it from `service.client`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from service.client.control import Control, UnreachableError
from service.protocol.control import VERBS, ControlError
from service.protocol.endpoints import ANSWER_S

#: Between two heartbeats [s]; how long one waits for its answer; and silence of the daemon that is given up on.
BEAT_S = 0.2
_BEAT_ANSWER_S = 0.5
_PATIENCE_S = 10.0
#: Longest wait for an arm that was told to stop.
_STOP_S = 10.0

Progress = Callable[[Mapping[str, Any]], None]


class Runs:
    """Runs of one arm, and guiding it by hand.

    Parameters
    ----------
    control : Control
    arm : str, optional
        May be left out where there is only one.

    Examples
    --------
    Arming is an act of its own, by whoever has looked at the arm; its permit serves for one run::

        with Control() as control:
            runs = Runs(control, "panda")
            permit = runs.arm(120.0)
            done = runs.run(read_trajectory(Path("trajectory.json")).as_message(), permit, periods=5)
            print(done["run"]["outcome"], done["run"]["reason"])
    """

    def __init__(self, control: Control, arm: str | None = None) -> None:
        self.control = control
        self._arm = {} if arm is None else {"arm": arm}

    def arm(self, for_s: float | None = None) -> str:
        """Switch the drives on; returns the permit, good for `for_s` seconds and one run or session of guiding."""
        given = {} if for_s is None else {"for_s": for_s}
        return str(self.control.request("arm", ANSWER_S, **self._arm, **given)["permit"])

    def disarm(self) -> dict[str, Any]:
        """Stop what moves, and switch the drives off."""
        return self.control.request("disarm", ANSWER_S, **self._arm)

    def abort(self) -> dict[str, Any]:
        """Stop a run or guiding within the acceleration limits, and switch the drives off."""
        return self.control.request("abort", ANSWER_S, **self._arm)

    def run(
        self,
        trajectory: Mapping[str, Any],
        permit: str,
        *,
        periods: int = 1,
        hold: bool = False,
        name: str = "",
        changed_robot: bool = False,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Run a trajectory, and stay with it until the arm has come to rest.

        If this is interrupted by any exception, such as KeyboardInterrupt, the run is aborted.

        Parameters
        ----------
        trajectory : mapping
            As `service.io.trajectory_file.Trajectory.as_message` gives it.
        permit : str
            Of `arm`.
        periods : int
        hold : bool
            Stay armed at the end, until the permit expires.
        name : str
            Of the trajectory, for the history.
        changed_robot : bool
            Run it also if it was designed on another version of the robot's description.
        on_progress : callable, optional
            Takes what the arm says of the run, with each heartbeat.

        Returns
        -------
        dict
            `["run"]["outcome"]` is "completed" or "stopped", then with a `["run"]["reason"]`.

        Raises
        ------
        ControlError
            It is refused: the message says why, and nothing has moved.  Or the run was lost, for the arm's acquisition
            was restarted, and the drives have stopped by themselves.
        UnreachableError
            The daemon has not answered for a while; it stops the arm for want of a heartbeat.
        """
        args = {"trajectory": dict(trajectory), "periods": periods, "hold": hold, "name": name}
        return self._do("run_trajectory", "run", permit, args | {"changed_robot": changed_robot}, on_progress)

    def guide(
        self,
        permit: str,
        *,
        for_s: float | None = None,
        friction_share: float | None = None,
        damping_time_s: float | None = None,
        speed_share: float | None = None,
        model: Mapping[str, Any] | None = None,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Let the arm be guided by hand, and stay with it until its drives hold it again and are switched off.

        If this is interrupted by any exception, such as KeyboardInterrupt, guiding is ended at once.

        Parameters
        ----------
        permit : str
            Of `arm`.
        for_s : float, optional
            How long; by default until it is stopped, or the permit expires.
        friction_share, damping_time_s, speed_share : float, optional
            In place of those of the configuration; no higher speed may be asked for.
        model : mapping, optional
            In place of the active model, which is watched: `theta`, `constants`, `robot` (SHA-256), and a `name`.
        on_progress : callable, optional
            Takes what the arm says, with each heartbeat.

        Returns
        -------
        dict
            `["guiding"]["outcome"]` is "completed" or "stopped", then with a `["guiding"]["reason"]`.

        Raises
        ------
        ControlError
            It is refused: the message says why, and nothing has moved.
        UnreachableError
            The daemon has not answered for a while; it ends guiding for want of a heartbeat.
        """
        given = {
            "for_s": for_s,
            "friction_share": friction_share,
            "damping_time_s": damping_time_s,
            "speed_share": speed_share,
            "model": None if model is None else dict(model),
        }
        args = {name: value for name, value in given.items() if value is not None}
        return self._do("zero_force", "guiding", permit, args, on_progress)

    def _do(
        self, verb: str, what: str, permit: str, args: Mapping[str, Any], on_progress: Progress | None
    ) -> dict[str, Any]:
        """Ask for something that a permit is used for, and stay with it; `what` is its key in the answers."""
        try:
            # longer than the daemon waits itself: what it says is clearer than silence
            said = self.control.request(verb, VERBS[verb].within_s + ANSWER_S, permit=permit, **args, **self._arm)
            return self._follow(said, verb, what, permit, on_progress)
        except ControlError as error:  # refused, or the daemon has lost the arm: there is nothing to stop
            if error.type == "timeout":  # not answered: nobody knows
                with contextlib.suppress(UnreachableError, ControlError):
                    self._stop()
            raise
        except BaseException:
            with contextlib.suppress(UnreachableError, ControlError):
                self._stop()
            raise

    def _stop(self) -> None:
        """Abort, and wait until the arm has come to rest."""
        until = time.monotonic() + _STOP_S
        while self.abort()["state"] != "disarmed" and time.monotonic() < until:
            time.sleep(BEAT_S)

    def _follow(
        self, said: dict[str, Any], verb: str, what: str, permit: str, on_progress: Progress | None
    ) -> dict[str, Any]:
        number = said[what]["number"]
        heard_s = time.monotonic()
        while True:
            done = said[what]
            if done is None or done["number"] != number:  # another acquisition: it has been restarted meanwhile
                reason = said["reason"] or "the arm knows nothing of it any more"
                raise ControlError("unavailable", f"{verb}: it was lost: {reason}")
            if on_progress is not None:
                on_progress(said)
            if done["outcome"] in ("completed", "stopped"):
                return said
            if done["outcome"] == "refused":  # this was not heard of after the checks
                raise ControlError("unavailable", f"{verb}: {done['reason']}")
            if done["outcome"] != "checked":  # its first heartbeat lets it begin
                time.sleep(BEAT_S)
            try:
                said = self.control.request("heartbeat", _BEAT_ANSWER_S, permit=permit, **self._arm)
                heard_s = time.monotonic()
            except UnreachableError:
                if time.monotonic() - heard_s > _PATIENCE_S:
                    raise
            except ControlError as error:
                raise ControlError(error.type, f"{verb}: it was lost: {error.message}") from error
