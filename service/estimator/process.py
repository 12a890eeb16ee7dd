"""The estimator process of one arm: frames in, estimates and torques out.

Results are timed by the frames' own clock, so that the same recording gives the same messages at any speed. The state
is saved every few seconds and at the end, and restored at the next start.
"""

import gc
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import zmq

from drivers.frame import JointFrame
from rt_core.online import OnlineEstimator
from service.config.arm_robot import load_arm_robot, online_settings
from service.estimator._active_model import ActiveModel
from service.estimator._breakaway import BreakawayTracking
from service.estimator._encoder_monitor import EncoderMonitor
from service.estimator._examiner import Examiner
from service.estimator._frame_buffer import FrameBuffer
from service.estimator._frame_consumer import FrameBlock, FrameConsumer
from service.estimator._hand_guiding_model import HandGuidingModelSource
from service.estimator._prior import prior_reply
from service.estimator._rigid_estimate import Inputs, RigidEstimate
from service.estimator._saved_state import SavedState
from service.estimator._trust import TrustEvents
from service.estimator._window_requests import WindowRequests
from service.estimator.elastic_tracking import elastic_tracking
from service.protocol.control import ControlError
from service.protocol.messages import BodyMessage, Envelope, EstimateMessage, Message, TorqueMessage, encode
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


class EstimatorProcess:
    """Runs one arm's estimator on its frames."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.arm = worker.arm
        robot = load_arm_robot(self.arm, worker.config.base)
        model = robot.model
        settings = online_settings(self.arm, robot, f"arm {self.arm.name}: estimator")
        self.frame_subscriber = FrameSubscriber(worker, self._on_frames)
        self.source = self.frame_subscriber.wait_for_meta(worker)
        has_dq = "dq" in self.source["channels"]
        self.inputs = Inputs(model, has_dq)
        rate_hz = float(self.source["rate_hz"])
        self.estimator = OnlineEstimator(model, settings, rate_hz, has_dq=has_dq)
        where = f"arm {self.arm.name}: elastic"
        self.elastic = elastic_tracking(self.arm, model, self.source["channels"], rate_hz, where)
        began = time.monotonic()
        worker.log.info("compiling", what=f"the estimator of {model.n} joints, minutes the first time")
        self.estimator.warm_up()
        self.elastic.warm_up()
        worker.log.info("compiled", seconds=round(time.monotonic() - began, 3))
        look_s = max(1e-9 * WATCH_NS, 1.0 / self.arm.publish.estimate_hz)
        self.consumers: list[FrameConsumer] = []  # in the order in which they take a block
        self.encoders = EncoderMonitor(self.estimator, self._on_event, self.consumers, self._rolled_back)
        self.active = ActiveModel(
            self.estimator, robot, self._on_event, look_s, lambda: self.encoders.invalid_reason, self.elastic
        )
        self.breakaway = BreakawayTracking(
            self.estimator, lambda: self.active.settled and not self.encoders.stuck, self._on_event
        )
        self.rigid = RigidEstimate(self.estimator)
        self.frame_buffer = FrameBuffer(self.arm.window_s, self.estimator.rate_hz, model.n, self.source["channels"])
        self.consumers += (
            self.active, self.frame_buffer, self.elastic, *self.elastic.trackers, self.breakaway, self.rigid,
            self.encoders,
        )  # fmt: skip
        self.saved_state = SavedState(worker, self.estimator.state_hash, self.consumers, self.frame_subscriber)
        self.resumed = self.saved_state.resume()
        if not self.resumed:
            self.active.restore({})
        self.trust = TrustEvents(self.estimator, self._on_event)
        resets = int(self.estimator.report().resets)
        self.active.start(self.arm.model)  # after the state, which brings constants of its own
        if self.resumed and self.estimator.report().resets > resets:
            worker.log.warning("estimate_restarted", reason=f"{self.arm.model}: not the model of the saved state")
        self.windows = WindowRequests(worker, self.frame_subscriber, self.frame_buffer, self.encoders)
        window = worker.runtime.directory / f"{self.arm.name}.examined"
        self.examiner = Examiner(self.estimator, robot, self.frame_buffer, window, worker.log)
        self.consumers.append(self.examiner)
        self._seq = dict.fromkeys(("estimate", "torque", "elastic", "meta", "status", "stats", "event"), 0)
        self._time = (0, 0)
        self._pending = 0  # frames that have been received and not processed
        self._estimate_ns = round(1e9 / self.arm.publish.estimate_hz)
        self._torque_ns = round(1e9 / self.arm.publish.torque_hz)
        self._next_estimate_ns = self._next_torque_ns = self._next_watch_ns = self._next_change_ns = _NEVER
        self._drained = False
        self._handlers: dict[str, Handler] = {
            "snapshot": self._on_snapshot, "reset_estimator": self._on_reset, "activate": self._on_activate,
            **self.windows.handlers, **HandGuidingModelSource(self.arm, self.active).handlers,
            "prior": partial(prior_reply, self.estimator),
        }  # fmt: skip
        self._next_report_ns = self._next_tick_ns = 0
        self._steps = self._step_ns = self._step_max_ns = self._age_max_ns = 0
        self._latency = Durations(LATENCY_NS)  # from a frame's arrival to the estimate that it has renewed
        self.socket = worker.context.socket(zmq.PUB)
        self.socket.setsockopt(zmq.SNDHWM, RESULT_QUEUE)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.bind(worker.runtime.results(self.arm.name, "estimator"))

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Estimate until stopped."""
        self.frame_subscriber.start()
        self.worker.ready(resumed=self.resumed, hash=str(self.estimator.meta["hash"]))
        gc.collect()
        gc.freeze()
        while not self.worker.stopping:
            self.frame_subscriber.poll()
            now_ns = time.monotonic_ns()
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)

    def _on_frames(self, frames: Sequence[JointFrame], restart: int | None) -> None:
        """Process successive frames in blocks, with the results of one after the other."""
        if restart is not None:
            self.rigid.lost = restart
            for consumer in self.consumers:
                consumer.restart_stream()
            self._next_estimate_ns = self._next_torque_ns = self._next_watch_ns = self._next_change_ns = _NEVER
        self._drained = False
        self._pending = len(frames)
        # the torque of a hand is no change of the arm: nothing is learned from it
        for alike in self.inputs.blocks(frames, guided=self.frame_subscriber.guided):
            rest: FrameBlock | None = alike
            while rest is not None:
                rest.masked = rest.guided or self.encoders.stuck
                block, rest = rest.split(self._limit(rest) if len(rest) > 1 else 1)
                self._pending -= len(block)
                self._on_block(block)

    def _limit(self, block: FrameBlock) -> int:
        """Return the number of frames up to the one with which something is published, or a consumer acts."""
        due_ns = self._next_estimate_ns
        if block.t_ns[0] >= due_ns and not self._estimate_changed:
            due_ns = self.estimator.next_change_ns()
        if not (block.masked or block.lacking):
            due_ns = min(due_ns, self._next_torque_ns)
        return min(block.until(due_ns), *(consumer.limit(block) for consumer in self.consumers))

    @property
    def _estimate_changed(self) -> bool:
        # that an estimate stands still, for lack of temperatures too, is published
        return bool(
            self.rigid.renewed or self.estimator.lacks_temperature.any() or self.encoders.stuck or self.trust.starved
        )

    def _on_block(self, block: FrameBlock) -> None:
        began_ns = time.monotonic_ns()
        self._time = (block.t_ns[-1], block.t_host_ns[-1])
        t_ns = block.t_ns[-1]
        for consumer in self.consumers:
            consumer.push(block)
        if t_ns >= self._next_torque_ns and not block.masked and not block.lacking:
            self._next_torque_ns = max(self._next_torque_ns + self._torque_ns, t_ns + self._torque_ns // 2)
            self._publish_torque()
        if t_ns >= self._next_estimate_ns and self._estimate_changed:
            if self._next_estimate_ns == _NEVER:  # torque between two updates: then neither waits for the other
                self._next_torque_ns = t_ns + self._torque_ns // 2
            self._next_estimate_ns = max(self._next_estimate_ns + self._estimate_ns, t_ns + self._estimate_ns // 2)
            self._publish_estimate()
        if (due_body := self.elastic.due(t_ns)) is not None:
            self._publish("elastic", due_body)
        spent_ns = time.monotonic_ns() - began_ns
        self._steps += len(block)
        self._step_ns += spent_ns
        self._step_max_ns = max(self._step_max_ns, spent_ns)
        self._age_max_ns = max(self._age_max_ns, began_ns + spent_ns - block.t_host_ns[0])

    def _tick(self, now_ns: int) -> None:
        self._next_tick_ns = now_ns + TICK_NS
        self.frame_subscriber.log_losses(now_ns)
        if self.frame_subscriber.ended and not self._drained:
            self._drained = True
            self._publish_estimate()
            if self.arm.elastic:
                self._publish("elastic", {"joints": self.elastic.documents()})
            self.saved_state.save()
            self._next_report_ns = 0
            self.worker.log.info("drained", **self.frame_subscriber.counts())
            self.worker.heartbeat(now_ns, self._status())
        self.worker.serve(self._handlers)
        self.windows.reply()
        self.examiner.poll(self._time[0], self.windows.meta, suppressed=self.encoders.stuck)
        if self.worker.heartbeat_due(now_ns):
            self.worker.heartbeat(now_ns, self._status())
        if now_ns >= self._next_report_ns:
            self._next_report_ns = now_ns + REPORT_NS
            self._report()
        self.saved_state.save_if_due(now_ns)

    # ------------------------------------------------------------ results

    def _envelope(self, kind: str, t_ns: int) -> Envelope:
        seq = self._seq[kind]
        self._seq[kind] = seq + 1
        clock = str(self.frame_subscriber.meta.get("clock", ""))
        host_ns = self.rigid.renewed_host_ns if kind == "estimate" else self._time[1]
        return Envelope("estimator", self.worker.epoch, seq, t_ns, clock, host_ns)

    def _send(self, message: Message) -> None:
        self.socket.send_multipart(encode(message), zmq.NOBLOCK)  # a publisher drops for slow consumers

    def _publish_estimate(self) -> None:
        renewed, self.rigid.renewed = self.rigid.renewed, False
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
                hash=str(self.estimator.meta["hash"]),
            )
        )  # fmt: skip
        if renewed:
            self._latency.add(time.monotonic_ns() - self.rigid.renewed_host_ns)

    def _publish_torque(self) -> None:
        torque = self.estimator.torque()
        if torque is not None:  # None until the filters are full
            t_ns, tau, predicted, residual = torque
            self._send(TorqueMessage(self.arm.name, self._envelope("torque", t_ns), tau, predicted, residual))

    def _on_event(self, kind: str, text: str, data: dict[str, Any]) -> None:
        """Report an event to the supervisor and the subscribers."""
        source_epoch, expected = self.frame_subscriber.position
        ids = {"source_epoch": source_epoch, "frame": expected - 1 - self._pending}
        ids |= {"estimator_epoch": self.worker.epoch, "estimate": self._seq["estimate"] - 1}
        self.worker.event(kind, text, ids, **data)
        self._publish("event", {"event": kind, "text": text, "data": data})

    def _rolled_back(self, since_ns: int) -> dict[str, Any]:
        """Drop the frames since an encoder stuck; return the earlier reports that still hold."""
        self.frame_buffer.drop_since(since_ns)
        self.saved_state.next_ns = 0
        return {"still": self.active.reported}

    def _publish(self, kind: str, body: Mapping[str, Any]) -> None:
        self._send(BodyMessage(self.arm.name, kind, self._envelope(kind, self._time[0]), dict(body)))

    def _status(self) -> dict[str, Any]:
        state = "drained" if self._drained else "running" if self.frame_subscriber.received else "waiting"
        return {
            "state": state, "resumed": self.resumed, "unusable": self.rigid.unusable,
            "save_error": self.saved_state.writer.error,
            **{key: value for consumer in self.consumers for key, value in consumer.report().items()},
            **self.trust.document(self._time[0]), **self.frame_subscriber.counts(),
        }  # fmt: skip

    def _report(self) -> None:
        self.active.check_temperature()
        self._publish("meta", {**self.frame_subscriber.meta, **self.estimator.meta, "breakaway": self.breakaway.meta})
        self._publish("status", self._status())
        steps = max(1, self._steps)
        self._publish(
            "stats",
            {
                "rate_hz": float(self._steps), "step_mean_us": self._step_ns / steps * 1e-3,
                "step_max_us": self._step_max_ns * 1e-3, "age_max_us": self._age_max_ns * 1e-3,
                "rss_mb": resident_mb(os.getpid()), "updates": self.rigid.updates, "latency": self._latency.report(),
            },
        )  # fmt: skip
        self._steps = self._step_ns = self._step_max_ns = self._age_max_ns = 0

    # ------------------------------------------------------------ requests

    def _on_snapshot(self, args: dict[str, Any]) -> dict[str, Any]:
        self.saved_state.save()
        if self.saved_state.writer.error:
            raise ControlError("failed", self.saved_state.writer.error)
        report, temperatures = self.estimator.report(), self.estimator.temperatures
        return {
            "arm": args["arm"], "t_ns": report.t_ns, "theta": report.theta.tolist(),
            "validated": report.validated.tolist(), "std": report.std.tolist(),
            "covariance": self.estimator.stated_covariance.tolist(), "status": list(report.status),
            "excited": [bool(flag) for flag in report.excited], "lam": report.lam.tolist(),
            "sigma": report.sigma.tolist(), "frames": report.frames, "used": report.used, "masked": report.masked,
            "lost": report.lost, "resets": report.resets,
            "temperatures": None if temperatures is None else temperatures.plain, "elastic": self.elastic.documents(),
            **self.breakaway.report(), "meta": self.estimator.meta, "source": self.frame_subscriber.meta,
            "path": str(self.saved_state.path),
        }  # fmt: skip

    def _on_reset(self, args: dict[str, Any]) -> dict[str, Any]:
        for consumer in self.consumers:
            consumer.reset()
        self.saved_state.save()  # a restart must not bring the old state back
        self._next_estimate_ns = self._next_torque_ns = _NEVER
        self.worker.log.info("estimator_reset")
        return {"arm": args["arm"]}

    def _on_activate(self, args: dict[str, Any]) -> dict[str, Any]:
        answer = self.active.activate(args)
        self._next_report_ns = 0  # names and constants go out at once
        self.saved_state.next_ns = 0  # a restart must not adopt it again
        return {"arm": args["arm"], **answer}

    def close(self) -> None:
        """Save the state, and finish the window that is being written."""
        self.saved_state.save()
        self.examiner.close()
        self.windows.close()
        self.saved_state.close()


def main(worker: Worker) -> None:
    """Run the estimator of the worker's arm."""
    estimation = EstimatorProcess(worker)
    try:
        estimation.run()
    finally:
        estimation.close()
