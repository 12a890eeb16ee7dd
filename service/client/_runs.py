"""Motions of a daemon's arm; exported by `service.client`."""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from service.client.control import Control, UnreachableError
from service.protocol.control import VERBS, ControlError
from service.protocol.endpoints import ANSWER_S

#: Time between two heartbeats [s]; longest wait for their reply; longest silence of the daemon.
HEARTBEAT_S = 0.2
_HEARTBEAT_REPLY_S = 0.5
_PATIENCE_S = 10.0
#: Longest wait for an arm that is stopping.
_STOP_S = 10.0

Progress = Callable[[Mapping[str, Any]], None]


class Runs:
    """Runs of one arm, and guiding it by hand.

    Parameters
    ----------
    control : Control
    arm : str, optional
        Optional where there is only one.

    Examples
    --------
    Arming is a separate act, by the person who watches the arm; its permit is good for one run::

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
        """Switch the drives on; return the permit, good for `for_s` seconds and one run or session of guiding."""
        given = {} if for_s is None else {"for_s": for_s}
        return str(self.control.request("arm", ANSWER_S, **self._arm, **given)["permit"])

    def disarm(self) -> dict[str, Any]:
        """Stop all motion, and switch the drives off."""
        return self.control.request("disarm", ANSWER_S, **self._arm)

    def abort(self) -> dict[str, Any]:
        """Stop a run or guiding within the acceleration limits, and switch the drives off."""
        return self.control.request("abort", ANSWER_S, **self._arm)

    def run(
        self, trajectory: Mapping[str, Any], permit: str, *, periods: int = 1, hold: bool = False, name: str = "",
        changed_robot: bool = False, on_progress: Progress | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Run a trajectory, sending heartbeats until the arm has come to rest.

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
            Allow a trajectory designed on another version of the robot's description.
        on_progress : callable, optional
            Called with the arm's report at each heartbeat.

        Returns
        -------
        dict
            `["run"]["outcome"]` is "completed" or "stopped", then with a `["run"]["reason"]`.

        Raises
        ------
        ControlError
            Refused: the message says why, and nothing has moved.  Or lost: the arm's acquisition was restarted, and the
            drives have stopped by themselves.
        UnreachableError
            The daemon does not answer; it stops the arm when heartbeats are missing.
        """
        args = {"trajectory": dict(trajectory), "periods": periods, "hold": hold, "name": name}
        return self._do("run_trajectory", "run", permit, args | {"changed_robot": changed_robot}, on_progress)

    def guide(
        self, permit: str, *, for_s: float | None = None, friction_share: float | None = None,
        damping_time_s: float | None = None, speed_share: float | None = None, model: Mapping[str, Any] | None = None,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Let the arm be guided by hand, sending heartbeats until its drives hold it again and are switched off.

        If this is interrupted by any exception, such as KeyboardInterrupt, guiding is ended at once.

        Parameters
        ----------
        permit : str
            Of `arm`.
        for_s : float, optional
            How long; by default until it is stopped, or the permit expires.
        friction_share, damping_time_s, speed_share : float, optional
            Override the configuration, except for a higher speed.
        model : mapping, optional
            Instead of the active model: `theta`, `constants`, `robot` (SHA-256), and a `name`.
        on_progress : callable, optional
            Called with the arm's report at each heartbeat.

        Returns
        -------
        dict
            `["guiding"]["outcome"]` is "completed" or "stopped", then with a `["guiding"]["reason"]`.

        Raises
        ------
        ControlError
            Refused: the message says why, and nothing has moved.
        UnreachableError
            The daemon does not answer; it ends guiding when heartbeats are missing.
        """
        given = {
            "for_s": for_s, "friction_share": friction_share, "damping_time_s": damping_time_s,
            "speed_share": speed_share, "model": None if model is None else dict(model),
        }  # fmt: skip
        args = {name: value for name, value in given.items() if value is not None}
        return self._do("zero_force", "guiding", permit, args, on_progress)

    def _do(
        self, verb: str, what: str, permit: str, args: Mapping[str, Any], on_progress: Progress | None
    ) -> dict[str, Any]:
        """Make a request that uses a permit, and follow it to its end; `what` is its key in the replies."""
        try:
            # longer than the daemon's own limit, because its error says more than silence
            reply = self.control.request(verb, VERBS[verb].within_s + ANSWER_S, permit=permit, **args, **self._arm)
            return self._follow(reply, verb, what, permit, on_progress)
        except ControlError as error:  # refused, or the daemon has lost the arm: nothing to stop
            if error.type == "timeout":  # no reply: the state is unknown
                self._stop()
            raise
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """Abort, and wait until the arm has come to rest, as far as the daemon answers."""
        until = time.monotonic() + _STOP_S
        with contextlib.suppress(UnreachableError, ControlError):
            while self.abort()["state"] != "disarmed" and time.monotonic() < until:
                time.sleep(HEARTBEAT_S)

    def _follow(
        self, reply: dict[str, Any], verb: str, what: str, permit: str, on_progress: Progress | None
    ) -> dict[str, Any]:
        number = reply[what]["number"]
        replied_s = time.monotonic()
        while True:
            done = reply[what]
            if done is None or done["number"] != number:  # the acquisition was restarted meanwhile
                reason = reply["reason"] or "the arm knows nothing of it any more"
                raise ControlError("unavailable", f"{verb}: it was lost: {reason}")
            if on_progress is not None:
                on_progress(reply)
            if done["outcome"] in ("completed", "stopped"):
                return reply
            if done["outcome"] == "refused":  # no heartbeat arrived after the checks
                raise ControlError("unavailable", f"{verb}: {done['reason']}")
            if done["outcome"] != "checked":  # the first heartbeat starts it
                time.sleep(HEARTBEAT_S)
            try:
                reply = self.control.request("heartbeat", _HEARTBEAT_REPLY_S, permit=permit, **self._arm)
                replied_s = time.monotonic()
            except UnreachableError:
                if time.monotonic() - replied_s > _PATIENCE_S:
                    raise
            except ControlError as error:
                raise ControlError(error.type, f"{verb}: it was lost: {error.message}") from error
