"""The estimator process of one arm: frames in, estimates and torques out.

Results are timed by the frames' own clock, so that the same recording gives the same messages at any speed. The state
is saved every few seconds and at the end, and restored at the next start.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import zmq

from drivers.files.recordings.format import RecordingMeta
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.online import OnlineEstimator
from rt_core.types import BoolArray, FloatArray
from service.config.arm_robot import load_arm_robot, online_settings
from service.estimator._active_model import ActiveModel, SavedModel
from service.estimator._breakaway import BreakawayTracking
from service.estimator._encoder_monitor import EncoderMonitor
from service.estimator._examiner import Examiner
from service.estimator._frame_buffer import MIN_SHARE, FrameBuffer, save_request
from service.estimator._hand_guiding_model import HandGuidingModelSource
from service.estimator._prior import PriorSource
from service.estimator._trust import TrustEvents
from service.estimator.elastic_tracking import elastic_tracking
from service.io.state_file import FILE_NAME, StateWriter, load_state, set_aside
from service.protocol.control import ControlError
from service.protocol.messages import (
    BodyMessage,
    Envelope,
    EstimateMessage,
    FrameMessage,
    Message,
    TorqueMessage,
    encode,
)
from service.worker.frame_subscriber import FrameSubscriber
from service.worker.loop_statistics import LATENCY_NS, Durations
from service.worker.resources import resident_mb
from service.worker.worker import Handler, Worker

REPORT_NS = 1_000_000_000
WATCH_NS = 1_000_000_000  # of the frames' own clock, between two checks for drift
CHANGE_NS = 100_000_000  # and for sudden changes
TICK_NS = 50_000_000
RESULT_QUEUE = 10_000
_NEVER = -(1 << 62)


class Inputs:
    """Joint positions, torques and velocities of a frame, from whichever channels the source has."""

    def __init__(self, model: RobotModel, has_dq: bool) -> None:
        self.model, self.has_dq = model, has_dq

    def __call__(self, frame: JointFrame) -> tuple[FloatArray, FloatArray, BoolArray | None, FloatArray | None]:
        """Return q (n,), tau (n,), valid (n,) or None, and dq (n,) if `has_dq`; none is valid if a channel lacks."""
        n, transmission = self.model.n, self.model.transmission
        q, tau = frame.q, frame.tau
        if q is None and frame.q_motor is not None and transmission is not None and len(frame.q_motor) == n:
            q = transmission.joint_position(frame.q_motor)
        if tau is None and frame.current is not None and transmission is not None and len(frame.current) == n:
            tau = transmission.joint_torque(transmission.torque_constant * frame.current)
        dq = frame.dq if self.has_dq else q
        if q is None or tau is None or dq is None or not len(q) == len(tau) == len(dq) == n:
            nothing = np.full(n, np.nan)
            return nothing, nothing, np.zeros(n, dtype=np.bool_), nothing if self.has_dq else None
        return q, tau, frame.valid, dq if self.has_dq else None


class EstimatorProcess:
    """Runs one arm's estimator on its frames."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.arm = worker.arm
        robot = load_arm_robot(self.arm, worker.config.base)
        model = robot.model
        settings = online_settings(self.arm, robot, f"arm {self.arm.name}: estimator")
        self.frame_subscriber = FrameSubscriber(worker, self._on_frame)
        self.source = self.frame_subscriber.wait_for_meta(worker)
        has_dq = "dq" in self.source["channels"]
        self.inputs = Inputs(model, has_dq)
        rate_hz = float(self.source["rate_hz"])
        self.estimator = OnlineEstimator(model, settings, rate_hz, has_dq=has_dq)
        where = f"arm {self.arm.name}: elastic"
        self.elastic = elastic_tracking(self.arm, model, self.source["channels"], rate_hz, where)
        began = time.monotonic()
        self.estimator.warm_up()
        self.elastic.warm_up()
        worker.log.info("compiled", seconds=round(time.monotonic() - began, 3))
        directory = worker.config.state_dir / self.arm.name
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        look_s = max(1e-9 * WATCH_NS, 1.0 / self.arm.publish.estimate_hz)
        self.encoders = EncoderMonitor(self.estimator, self._on_event, self._snapshot, self._on_stuck)
        self.active = ActiveModel(self.estimator, robot, self._on_event, look_s, lambda: self.encoders.invalid_reason)
        self.breakaway = BreakawayTracking(
            self.estimator, lambda: self.active.settled and not self.encoders.stuck, self._on_event
        )
        self.resumed, saved = self._resume()
        self.trust = TrustEvents(self.estimator, self._on_event)
        resets = int(self.estimator.report().resets)
        self.active.start(self.arm.model, saved)  # after the state, which brings constants of its own
        if self.resumed and self.estimator.report().resets > resets:
            worker.log.warning("estimate_restarted", reason=f"{self.arm.model}: not the model of the saved state")
        self.frame_buffer = FrameBuffer(self.arm.window_s, self.estimator.rate_hz, model.n, self.source["channels"])
        self._window_ns = 0  # time of its last frame
        window = worker.runtime.directory / f"{self.arm.name}.examined"
        self.examiner = Examiner(self.estimator, robot, self.frame_buffer, window, worker.log)
        self._saves: list[tuple[int, Future[dict[str, Any]]]] = []  # windows being written, by request
        self.unusable = 0  # frames without position or torque
        self._writer = StateWriter(self.path, self.estimator.state_hash)
        self._save_failed = ""  # as logged last
        self._window_writer = ThreadPoolExecutor(1, "window")
        self._next_save_ns = 0
        self._seq = dict.fromkeys(("estimate", "torque", "elastic", "meta", "status", "stats", "event"), 0)
        self._time = (0, 0)
        self._estimate_ns = round(1e9 / self.arm.publish.estimate_hz)
        self._torque_ns = round(1e9 / self.arm.publish.torque_hz)
        self._next_estimate_ns = self._next_torque_ns = self._next_watch_ns = self._next_change_ns = _NEVER
        self._renewed = False
        self._renewed_host_ns = 0
        self._drained = False
        self._handlers: dict[str, Handler] = {
            "snapshot": self._on_snapshot,
            "reset_estimator": self._on_reset,
            "activate": self._on_activate,
            "set_aside": self._on_save_window,
            **HandGuidingModelSource(self.arm, self.active).handlers,
            **PriorSource(self.estimator).handlers,
        }
        self._next_report_ns = self._next_tick_ns = 0
        self._steps = self._step_ns = self._step_max_ns = self._age_max_ns = 0
        self._updates = 0
        self._latency = Durations(LATENCY_NS)  # from a frame's arrival to the estimate that it has renewed
        self.socket = worker.context.socket(zmq.PUB)
        self.socket.setsockopt(zmq.SNDHWM, RESULT_QUEUE)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.bind(worker.runtime.results(self.arm.name, "estimator"))

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Estimate until stopped."""
        self.frame_subscriber.start()
        self.worker.ready(resumed=self.resumed, hash=str(self.meta["hash"]))
        gc.collect()
        gc.freeze()
        while not self.worker.stopping:
            self.frame_subscriber.poll()
            now_ns = time.monotonic_ns()
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)

    def _on_frame(self, message: FrameMessage, restart: int | None) -> None:
        if restart is not None:
            self.estimator.restart_stream(restart)
            self.elastic.restart_stream()
            self.breakaway.restart_stream()
            self.encoders.restart_stream()
            self.frame_buffer.clear()
            self.examiner.restart_stream()
            self._next_estimate_ns = self._next_torque_ns = self._next_watch_ns = self._next_change_ns = _NEVER
            self._renewed = False  # by a frame from before: the outage is no latency
        frame = message.frame
        began_ns = time.monotonic_ns()
        # the torque of a hand is no change of the arm: nothing is learned from it
        guided = self.frame_subscriber.guided
        suppressed = guided or self.encoders.stuck  # the frame carries no information on the arm
        if not suppressed:
            self.frame_buffer.push(frame)
            self._window_ns = frame.t_bus_ns
        self._drained = False
        self._time = (frame.t_bus_ns, frame.t_host_ns)
        self.elastic.push(frame, masked=suppressed)
        t_ns = frame.t_bus_ns
        q, tau, valid, dq = self.inputs(frame)
        lacking = bool(np.isnan(q).all())
        if lacking:
            self.unusable += 1
        else:
            self.breakaway.push(frame, q, tau, masked=suppressed)
        temperature = frame.temperature
        if temperature is not None and len(temperature) != len(q):
            temperature = None
        if self.estimator.step(t_ns, frame.seq, q, tau, valid, dq, temperature, masked=suppressed):
            self._renewed = True
            self._updates += 1
            self._renewed_host_ns = frame.t_host_ns
        if not guided and (valid is None or valid.all()):
            self.encoders.push(t_ns, q)
        if t_ns >= self._next_torque_ns and not suppressed and not lacking:
            self._next_torque_ns = max(self._next_torque_ns + self._torque_ns, t_ns + self._torque_ns // 2)
            self._publish_torque()
        if t_ns >= self._next_estimate_ns and (
            self._renewed or self._lacking or self.encoders.stuck or self.trust.starved
        ):
            if self._next_estimate_ns == _NEVER:  # torque between two updates: then neither waits for the other
                self._next_torque_ns = t_ns + self._torque_ns // 2
            self._next_estimate_ns = max(self._next_estimate_ns + self._estimate_ns, t_ns + self._estimate_ns // 2)
            self._publish_estimate()
        if (due_body := self.elastic.due(t_ns)) is not None:
            self._publish("elastic", due_body)
        spent_ns = time.monotonic_ns() - began_ns
        self._steps += 1
        self._step_ns += spent_ns
        self._step_max_ns = max(self._step_max_ns, spent_ns)
        self._age_max_ns = max(self._age_max_ns, began_ns + spent_ns - frame.t_host_ns)

    def _tick(self, now_ns: int) -> None:
        self._next_tick_ns = now_ns + TICK_NS
        self.frame_subscriber.log_losses(now_ns)
        if self.frame_subscriber.ended and not self._drained:
            self._drained = True
            self._publish_estimate()
            if self.arm.elastic:
                self._publish("elastic", {"joints": self.elastic.documents()})
            self._save_now()
            self._next_report_ns = 0
            self.worker.log.info("drained", **self.frame_subscriber.counts())
            self.worker.heartbeat(now_ns, self._status())
        self.worker.serve(self._handlers)
        self._reply_saved()
        self.examiner.poll(self._time[0], self._window_meta, suppressed=self.encoders.stuck)
        if self.worker.heartbeat_due(now_ns):
            self.worker.heartbeat(now_ns, self._status())
        if now_ns >= self._next_report_ns:
            self._next_report_ns = now_ns + REPORT_NS
            self._report()
        # while one is being written: at a later tick
        if now_ns >= self._next_save_ns and self._writer.begin(self._state):
            self._next_save_ns = now_ns + int(self.arm.state.every_s * 1e9)
            self._log_save()

    # ------------------------------------------------------------ results

    @property
    def meta(self) -> dict[str, Any]:
        """Names, units and settings of the estimate as it is now."""
        return self.estimator.meta

    def _envelope(self, kind: str, t_ns: int) -> Envelope:
        seq = self._seq[kind]
        self._seq[kind] = seq + 1
        clock = str(self.frame_subscriber.meta.get("clock", ""))
        host_ns = self._renewed_host_ns if kind == "estimate" else self._time[1]
        return Envelope("estimator", self.worker.epoch, seq, t_ns, clock, host_ns)

    def _send(self, message: Message) -> None:
        self.socket.send_multipart(encode(message), zmq.NOBLOCK)  # a publisher drops for slow consumers

    def _publish_estimate(self) -> None:
        renewed, self._renewed = self._renewed, False
        report = self.estimator.report()
        self.trust.check(self._time[0])
        if report.t_ns >= self._next_watch_ns and not self.encoders.stuck:
            self._next_watch_ns = report.t_ns + WATCH_NS
            self.active.observe(report)
        if report.t_ns >= self._next_change_ns and not self.encoders.stuck:
            self._next_change_ns = report.t_ns + CHANGE_NS
            self.active.observe_changes(report.t_ns)
        self._send(
            EstimateMessage(
                self.arm.name, self._envelope("estimate", report.t_ns), theta=report.theta,
                validated=report.validated, std=report.std, status=tuple(report.status), excited=report.excited,
                lam=report.lam, innovation=report.innovation, sigma=report.sigma, delay_s=report.delay_s,
                frames=report.frames, used=report.used, masked=report.masked, lost=report.lost, resets=report.resets,
                hash=str(self.meta["hash"]),
            )
        )  # fmt: skip
        if renewed:
            self._latency.add(time.monotonic_ns() - self._renewed_host_ns)

    def _publish_torque(self) -> None:
        torque = self.estimator.torque()
        if torque is not None:  # None until the filters are full
            t_ns, tau, predicted, residual = torque
            self._send(TorqueMessage(self.arm.name, self._envelope("torque", t_ns), tau, predicted, residual))

    @property
    def _lacking(self) -> bool:
        """Whether the estimate stands still for lack of temperatures, which is published."""
        return self.estimator.has_temperature and bool(self.estimator.lacks_temperature.any())

    def _on_event(self, kind: str, text: str, data: dict[str, Any]) -> None:
        """Report an event to the supervisor and the subscribers."""
        source_epoch, expected = self.frame_subscriber.position
        ids = {"source_epoch": source_epoch, "frame": expected - 1}
        ids |= {"estimator_epoch": self.worker.epoch, "estimate": self._seq["estimate"] - 1}
        self.worker.event(kind, text, ids, **data)
        self._publish("event", {"event": kind, "text": text, "data": data})

    def _snapshot(self) -> dict[str, Any]:
        """Return the state of all other consumers of frames, to be rolled back with the estimate."""
        active, elastic, breakaway = self.active.snapshot(), self.elastic.state(), self.breakaway.snapshot()
        return {"active": active, "elastic": elastic, "breakaway": breakaway}

    def _on_stuck(self, snapshot: Mapping[str, Any], since_ns: int) -> dict[str, Any]:
        """Roll back what was learned since an encoder stuck; return the earlier reports that still hold."""
        self.active.rollback(snapshot["active"])
        self.elastic.rollback(snapshot["elastic"])
        self.breakaway.rollback(snapshot["breakaway"])
        self.frame_buffer.drop_since(since_ns)
        self._renewed = False
        self._next_save_ns = 0  # a restart must not bring the old state back
        return {"still": self.active.reported}

    def _publish(self, kind: str, body: Mapping[str, Any]) -> None:
        self._send(BodyMessage(self.arm.name, kind, self._envelope(kind, self._time[0]), dict(body)))

    def _status(self) -> dict[str, Any]:
        state = "drained" if self._drained else "running" if self.frame_subscriber.received else "waiting"
        return {
            "state": state, "resumed": self.resumed, "unusable": self.unusable, "save_error": self._writer.error,
            **self.active.status(), "breakaway": self.breakaway.document(), "encoders": self.encoders.document(),
            **self.trust.document(self._time[0]), **self.frame_subscriber.counts(),
        }  # fmt: skip

    def _report(self) -> None:
        self.active.check_temperature()
        source = {key: value for key, value in self.frame_subscriber.meta.items() if key not in self.meta}
        self._publish("meta", {**source, **self.meta, "breakaway": self.breakaway.meta})
        self._publish("status", self._status())
        steps = max(1, self._steps)
        self._publish(
            "stats",
            {
                "rate_hz": float(self._steps),
                "step_mean_us": self._step_ns / steps * 1e-3,
                "step_max_us": self._step_max_ns * 1e-3,
                "age_max_us": self._age_max_ns * 1e-3,
                "rss_mb": resident_mb(os.getpid()),
                "updates": self._updates,
                "latency": self._latency.report(),
            },
        )
        self._steps = self._step_ns = self._step_max_ns = self._age_max_ns = 0

    # ------------------------------------------------------------ state

    def _resume(self) -> tuple[bool, SavedModel | None]:
        """Restore the saved state, if it can be used; return whether it was, and its active model."""
        if not self.path.exists():
            return False, None
        if not self.arm.state.resume:
            self.worker.log.info("state_ignored", path=str(self.path))
            return False, None
        try:
            state = load_state(self.path, self.estimator.state_hash)
            position = int(state.pop("feed_epoch")), int(state.pop("feed_expected"))
            saved = self.active.read(state)
            self.estimator.restore(state)
        except (OSError, ValueError, TypeError, KeyError) as error:
            self.estimator.reset()
            try:
                kept_as = str(set_aside(self.path))
            except OSError as problem:  # the arm does without it, and saving says what is wrong
                kept_as = f"cannot be set aside: {problem.strerror}"
            self.worker.log.warning("state_set_aside", reason=str(error), kept_as=kept_as)
            return False, None
        self.elastic.restore(state, self._on_elastic_ignored)
        self.breakaway.restore(state, self._on_breakaway_ignored)
        self.frame_subscriber.resume(*position)
        self.worker.log.info("state_resumed", path=str(self.path), source_epoch=position[0], next_seq=position[1])
        return True, saved

    def _state(self) -> dict[str, Any]:
        epoch, expected = self.frame_subscriber.position
        models = self.estimator.state() | self.active.state() | self.elastic.state()
        models |= self.breakaway.state()
        return {**models, "feed_epoch": epoch, "feed_expected": expected}

    def _on_elastic_ignored(self, joint: str, reason: str) -> None:
        self.worker.log.warning("elastic_state_ignored", joint=joint, reason=reason)

    def _on_breakaway_ignored(self, reason: str) -> None:
        self.worker.log.warning("breakaway_state_ignored", reason=reason)

    def _save_now(self) -> None:
        self._writer.save(self._state())
        self._log_save()

    def _log_save(self) -> None:
        failed, self._save_failed = self._save_failed, self._writer.error
        if self._save_failed and self._save_failed != failed:
            self.worker.log.error("state_not_saved", reason=self._save_failed)

    # ------------------------------------------------------------ requests

    def _on_snapshot(self, args: dict[str, Any]) -> dict[str, Any]:
        self._save_now()
        if self._writer.error:
            raise ControlError("failed", self._writer.error)
        report, temperatures = self.estimator.report(), self.estimator.temperatures
        return {
            "arm": args["arm"], "t_ns": report.t_ns, "theta": report.theta.tolist(),
            "validated": report.validated.tolist(), "std": report.std.tolist(),
            "covariance": self.estimator.stated_covariance.tolist(), "status": list(report.status),
            "excited": [bool(flag) for flag in report.excited], "lam": report.lam.tolist(),
            "sigma": report.sigma.tolist(), "frames": report.frames, "used": report.used, "masked": report.masked,
            "lost": report.lost, "resets": report.resets,
            "temperatures": None if temperatures is None else temperatures.plain, "elastic": self.elastic.documents(),
            "breakaway": self.breakaway.document(), "meta": self.meta, "source": self.frame_subscriber.meta,
            "path": str(self.path),
        }  # fmt: skip

    def _on_reset(self, args: dict[str, Any]) -> dict[str, Any]:
        self.estimator.reset()
        self.elastic.reset()
        self.breakaway.reset()
        self._save_now()  # a restart must not bring the old state back
        self._next_estimate_ns = self._next_torque_ns = _NEVER
        self.worker.log.info("estimator_reset")
        return {"arm": args["arm"]}

    def _on_activate(self, args: dict[str, Any]) -> dict[str, Any]:
        answer = self.active.activate(args)
        self._next_report_ns = 0  # names and constants go out at once
        self._next_save_ns = 0  # a restart must not adopt it again
        return {"arm": args["arm"], **answer}

    def _window_meta(self) -> RecordingMeta:
        """Describe the frames that are kept."""
        source, rate_hz = self.frame_subscriber.meta, self.estimator.rate_hz
        names, units = tuple(source["joint_names"]), tuple(source["joint_units"])
        return RecordingMeta(self.arm.name, names, units, rate_hz, str(source["clock"]), str(source["source"]))

    def _on_save_window(self, args: dict[str, Any]) -> None:
        if self.encoders.stuck:
            raise ControlError(
                "failed", f"{self.encoders.invalid_reason}: no frame tells what a model can be identified from"
            )
        guided_s, seconds = 1e-9 * (self._time[0] - self._window_ns), args.get("seconds")
        if (
            self.frame_subscriber.guided
            and isinstance(seconds, (int, float))
            and guided_s > (1.0 - MIN_SHARE) * seconds > 0.0
        ):
            raise ControlError(
                "failed",
                f"the arm has been guided by hand for {guided_s:.1f} s, and a model is not identified from that: end "
                f"guiding, and wait for {seconds:g} s",
            )
        asked = save_request(args, self.frame_buffer, self.worker.config.state_dir, self._window_meta())
        self._saves.append((self.worker.request_id, self._window_writer.submit(asked.write, self.frame_buffer)))

    def _reply_saved(self) -> None:
        """Answer the requests whose window has been written."""
        for entry in [entry for entry in self._saves if entry[1].done()]:
            self._saves.remove(entry)
            id, written = entry
            try:
                self.worker.reply(id, written.result())
            except ControlError as error:
                self.worker.refuse(id, error)
            except (OSError, MemoryError) as error:
                self.worker.refuse(id, ControlError("failed", f"the frames cannot be set aside: {error!r:.200}"))
            except CancelledError:
                self.worker.refuse(id, ControlError("unavailable", "the estimator is ending"))

    def close(self) -> None:
        """Save the state, and finish the window that is being written."""
        self._save_now()
        self.examiner.close()
        self._window_writer.shutdown(cancel_futures=True)
        self._reply_saved()
        self._writer.close()


def main(worker: Worker) -> None:
    """Run the estimator of the worker's arm."""
    estimation = EstimatorProcess(worker)
    try:
        estimation.run()
    finally:
        estimation.close()
