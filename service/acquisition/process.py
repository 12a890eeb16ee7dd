"""The acquisition process of one arm: driver in, frames out.

It never waits for a slow consumer, unless the source can wait (`DriverInfo.lossless`).  Before the first frame it waits
until estimator and recorder have subscribed to a topic that marks each, which the publishing socket sees.
"""

import contextlib
import gc
import time
from typing import Any, Literal

import zmq

from drivers.driver import (
    Commandable,
    CommandRefusedError,
    Driver,
    DriverError,
    DriverTimeoutError,
    EndOfStream,
    OpenedInWith,
    Reporting,
)
from drivers.ethercat.config import EthercatConfig
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from service.acquisition._frame_gathering import FrameGathering
from service.acquisition._notices import NoticeTeller
from service.acquisition._returned_drives import MOVING, WATCH_NS, ReturnedDrives
from service.acquisition._torque_range import Clipped, TorqueRange
from service.acquisition.sources import check_source, make_driver, pace_of
from service.config.arm_robot import load_arm_robot
from service.config.arm_tables import RealtimeConfig, ReplayConfig
from service.config.load import ArmConfig, BusConfig
from service.io.kept_positions import FILE_NAME, load_positions
from service.io.sockets import readable
from service.motion.motion_player import MotionPlayer
from service.motion.run_verbs import RunRequests, make_runs, refusing
from service.protocol.control import ControlError
from service.protocol.messages import BodyMessage, Envelope, block_topic, encode, encode_frame, topic
from service.worker.frame_subscriber import marker
from service.worker.loop_statistics import LoopStatistics
from service.worker.realtime import apply_realtime
from service.worker.worker import FRAME_QUEUE, POLL_MS, FatalError, SourceError, Worker

State = Literal["held", "waiting", "running", "ended"]

TICK_NS = 50_000_000
REPORT_NS = 1_000_000_000
LOSSLESS_QUEUE = 1000
STALL_S = 30.0  # longest wait of a source that can wait; then it goes on, and frames are lost
READ_S = 0.1
STOP_S = 1.5  # for a run to come to rest when the daemon stops; then drives stop by their own ramps
_GRACE_S = 0.5  # beyond the longest start, before the process is killed
MAX_CONTROL = 512  # bytes that a subscriber may send


class Acquisition:
    """Reads one driver and publishes its frames."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        arm = worker.arm
        robot = load_arm_robot(arm, worker.config.base)
        model = robot.model
        self.keeps_cycle = isinstance(arm.driver, BusConfig)  # also before there are consumers
        path = worker.config.state_dir / arm.name / FILE_NAME
        # Whoever only listens to an arm knows that it is moved while nobody does.
        self._keeps_positions = isinstance(arm.driver, BusConfig) and arm.driver.mode != "none"
        kept = load_positions(path, arm.positions_sha256, model.n, worker.log) if self._keeps_positions else None
        self._returned = ReturnedDrives(model, worker.event, kept)
        # At the first start, once all joints are where they stood; after a restart when a client says so.
        self._enables = kept is not None and not worker.restarts and getattr(arm.driver, "enable", False)
        self._enable_ns = WATCH_NS + round(getattr(arm.driver, "enable_timeout_ms", 0.0) * 1e6)  # from the first frame
        if not isinstance(arm.driver, ReplayConfig) and (worker.restarts or self._enables):
            arm = arm.model_copy(update={"driver": arm.driver.model_copy(update={"enable": False})})
        self.driver: Driver = make_driver(arm, model)
        self.player: MotionPlayer | None = None
        self.runs: RunRequests | None = None
        if isinstance(arm.driver, EthercatConfig):  # planned now: later it would cost the bus its cycle
            self.player = self._make_player(arm, model, arm.driver.cycle_hz, arm.driver.bridge_cycles)
            self.runs = make_runs(worker, arm, robot, self.driver, arm.driver.cycle_hz, arm.driver.bridge_cycles)
        else:  # the rate of the others is not known yet; what is compiled for it is ready then
            make_runs(worker, arm, robot, self.driver, 1000.0)
        self._prepare(arm)
        if isinstance(arm.driver, EthercatConfig):
            within_s = arm.driver.start_timeout_s + _GRACE_S
            worker.set_startup_deadline(
                within_s,
                f"EtherCAT on {arm.driver.interface}: the start did not come to an end within {within_s:g} s, and was "
                "broken off: slaves went away meanwhile; look at the cable and the drives' power",
            )
        # From here on a bus runs, and needs its next frame within milliseconds.
        try:
            self.driver.open()
        except DriverError as error:
            # Restarts help a bus that was there before, not one that never was. A later start of the daemon may find
            # one that is powered by then; a recording or a simulation is the same at every start.
            raise (SourceError if self.keeps_cycle else FatalError)(str(error)) from error
        try:
            self.info = self.driver.info
            check_source(arm, model, self.info)
            if not isinstance(arm.driver, EthercatConfig):
                self.player = self._make_player(arm, model, self.info.rate_hz)
                self.runs = make_runs(worker, arm, robot, self.driver, self.info.rate_hz, lead_s=self.info.lead_s)
            self._set_up(arm, model)
        except BaseException:
            self.driver.close()
            raise

    def _make_player(self, arm: ArmConfig, model: RobotModel, rate_hz: float, bridged: int = 0) -> MotionPlayer | None:
        if arm.motion is None:
            return None
        player = MotionPlayer(model, arm.motion, 1.0 / rate_hz, bridged)
        if self.worker.restarts:  # after a restart nothing moves until a client enables it
            player.stop("the acquisition was restarted; thetad control enable goes on")
        return player

    def _prepare(self, arm: ArmConfig) -> None:
        """Apply the real-time settings: this delays the process, and nothing runs yet."""
        settings = arm.realtime
        if settings is None and isinstance(arm.driver, EthercatConfig):
            settings = RealtimeConfig()
        if settings is None:
            return
        for refused in apply_realtime(settings):
            self.worker.log.warning("realtime_refused", reason=refused)

    def _set_up(self, arm: ArmConfig, model: RobotModel) -> None:
        worker = self.worker
        runs = refusing(arm, self.driver, self.info) if self.runs is None else self.runs.handlers
        self._handlers = {"start": self._start, "enable": self._enable, "disable": self._disable, **runs}
        self._handlers |= {verb: self._returned.guarded(verb, self._handlers[verb]) for verb in MOVING}
        self._handlers["confirm_positions"] = self._returned.confirm
        # Evaluated once: the check against a protocol computes all of its properties.
        self._commandable = self.driver if isinstance(self.driver, Commandable) else None
        self.units = ["rad" if joint.kind == "revolute" else "m" for joint in model.joints]
        self.robot = model.name
        self.joint_names = [joint.name for joint in model.joints]
        self.state: State = "held" if arm.hold else "waiting"
        self._notices = NoticeTeller(worker.event)
        self.torque_range = None if arm.torque_range is None else TorqueRange(arm.torque_range, model)
        self.required = {marker("estimator")} | ({marker("recorder")} if arm.recorder else set())
        self.present: set[bytes] = set()
        self.frames = self.dropped = self.timeouts = 0
        self.ignored = 0  # messages of subscribers that are no subscription
        self._seq = dict.fromkeys(("status", "stats", "meta"), 0)
        self._arm = arm.name
        self._stops_at_end = arm.motion is not None and arm.motion.at_end == "stop"
        self._topic, self._block_topic = topic(arm.name, "frame"), block_topic(arm.name)
        self._status_topics = {topic(arm.name, kind) for kind in ("meta", "status")}
        self._time = (0, 0)  # latest t_ns and t_host_ns
        self._stalled = self._guided = False  # the latter as published last
        self._end_s = 0.0  # deadline of the end, whatever moves
        self._next_tick_ns = self._next_report_ns = 0
        self.loop = LoopStatistics(self.info.rate_hz * pace_of(arm))
        most = arm.publish.block_frames
        self._gathering = FrameGathering(most, round(arm.publish.block_ms * 1e6), self.loop.nominal_ns)
        self._cost_ns = self._cost_max_ns = 0  # of the turns that have been reported, and the longest since then
        self._last_report: dict[str, Any] = {}  # of a driver that has been closed
        self._reported = (0, time.monotonic_ns())
        self.socket = worker.context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.setsockopt(zmq.SNDHWM, (LOSSLESS_QUEUE if self.info.lossless else FRAME_QUEUE) // most)
        if self.info.lossless:
            self.socket.setsockopt(zmq.XPUB_NODROP, 1)
        self.socket.setsockopt(zmq.SNDTIMEO, POLL_MS)
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.socket.bind(worker.runtime.frames(arm.name))

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Publish until stopped; stay after the end of the stream, so that late subscribers learn of it."""
        info = self.info
        self.worker.log.info(
            "source_open", source=info.source, joints=info.n, rate_hz=info.rate_hz, lossless=info.lossless
        )
        self.worker.ready(source=info.source)
        if self.worker.restarts:
            self.worker.event("source_reopened", f"the {info.source} source is open again")
        self._idle(until_running=True)
        if not self.keeps_cycle:
            gc.collect()
            gc.freeze()
        while self.state == "running" and not self._may_end():
            try:
                frame = self._read()
            except DriverTimeoutError:
                if self._gathering.frames:  # the source had no more time than they may wait
                    self._send_block()
                    continue
                self.timeouts += 1
                if self.runs is not None and self.runs.silent():
                    self._next_report_ns = 0
                self._tick(time.monotonic_ns())
                continue
            except EndOfStream:
                self._end()
                break
            began_ns = time.monotonic_ns()
            self.worker.serve_urgent(self._handlers)
            if self.player is not None and not self._command(self.player, frame):
                self._end()
                break
            if self.runs is not None:
                self._move(self.runs, frame)
            self._publish_frame(frame)
            now_ns = time.monotonic_ns()
            if now_ns >= self._next_tick_ns:
                self._tick(now_ns)
                now_ns = time.monotonic_ns()  # a part of the turn: the next frame waits for it too
            self.loop.add(began_ns, now_ns)
            cost_ns = now_ns - began_ns
            if cost_ns > self._cost_max_ns:
                self._cost_max_ns = cost_ns
        self._send_block()
        self._idle(until_running=False)

    def _read(self) -> JointFrame:
        frame = self.driver.read(self._gathering.wait_s(READ_S))
        return self._returned.marked(frame) if self.keeps_cycle else frame

    def _move(self, runs: RunRequests, frame: JointFrame) -> None:
        """Pass a frame to the motion; hand guiding is published before the frames that it concerns."""
        if runs.step(frame):
            self._next_report_ns = 0
        if runs.guided != self._guided:
            self._guided = runs.guided
            self._send_block()  # messages and frames keep their order
            self._publish_status()

    def _may_end(self) -> bool:
        """Return whether the process may end: it is stopping, and a run has come to rest or takes too long."""
        if not self.worker.stopping:
            return False
        now_s = time.monotonic()
        if self.runs is None or not self.runs.moving:
            return True
        if not self._end_s:
            self._end_s = now_s + STOP_S
            self.runs.stop("the daemon stops")
        return now_s >= self._end_s

    def _idle(self, until_running: bool) -> None:
        while not self.worker.stopping and not (until_running and self.state == "running"):
            if not self.keeps_cycle or self.state == "ended":
                self.socket.poll(POLL_MS)
            while self.keeps_cycle and self.state != "ended" and time.monotonic_ns() < self._next_tick_ns:
                try:  # the bus goes on; frames before the start are dropped
                    self._read()
                except DriverTimeoutError:
                    self.timeouts += 1
            self._tick(time.monotonic_ns())
            if self.state == "waiting" and self.required <= self.present:
                self._enter("running")

    def _command(self, player: MotionPlayer, frame: JointFrame) -> bool:
        """Give the drives their next set position; False once the motion, and with it the stream, is over."""
        driver = self._commandable
        assert driver is not None
        state = player.state
        target = player.step(frame, driver.enabled)
        if target is not None:
            try:
                driver.command(target)
            except DriverError as error:
                player.stop(str(error))
        if player.state != state:
            if player.state == "stopped":
                failure = self.driver.report().get("enable_failure") if isinstance(self.driver, Reporting) else ""
                player.reason += f" ({failure})" if failure else ""
                driver.disable()
                self.worker.event("motion_stopped", f"the motion was stopped: {player.reason}", reason=player.reason)
            self._next_report_ns = 0
            self.worker.log.info("motion_" + player.state, reason=player.reason)
        return not (player.state == "ended" and self._stops_at_end)

    def _publish_frame(self, frame: JointFrame) -> None:
        if self.torque_range is not None:
            # Only here: the motion has judged `frame` as the driver gave it.
            frame, clipped = self.torque_range.marked(frame)
            for one in clipped:
                self._report_clipped(one)
        encoded = encode_frame(self._topic, "acquisition", self.worker.epoch, self.info.clock, frame)[1]
        self._time = (frame.t_bus_ns, frame.t_host_ns)
        if self._gathering.add(encoded, frame.t_host_ns):
            self._send_block()

    def _send_block(self) -> None:
        """Send the frames that have been gathered."""
        if not (frames := self._gathering.take()):
            return
        parts = [self._topic if len(frames) == 1 else self._block_topic, *frames]
        if not self.info.lossless:
            self.socket.send_multipart(parts, zmq.NOBLOCK)
        elif not self._send_lossless(parts):
            self.dropped += len(frames)
            return
        self.frames += len(frames)

    def _report_clipped(self, clipped: Clipped) -> None:
        name, unit = self.joint_names[clipped.joint], "N*m" if self.units[clipped.joint] == "rad" else "N"
        data = {"torque": clipped.torque, "limit": clipped.limit, "frames": clipped.frames}
        self.worker.event("torque_clipped", clipped.text(name, unit), joint=name, **data)

    def _clipping(self) -> list[str]:
        """Return the names of the joints whose torque is clipped now."""
        if self.torque_range is None:
            return []
        return [self.joint_names[joint] for joint in self.torque_range.lasting(time.monotonic_ns())]

    def _send_lossless(self, parts: list[bytes]) -> bool:
        """Send when every consumer has room; False if they stall for too long, and at once while they still do."""
        deadline_ns = time.monotonic_ns() + (0 if self._stalled or self.worker.stopping else int(STALL_S * 1e9))
        while True:
            if readable(self.socket):
                self._read_subscriptions()
            if self.required <= self.present:
                with contextlib.suppress(zmq.Again):
                    self.socket.send_multipart(parts)
                    self._stalled = False
                    return True
            else:
                self.socket.poll(POLL_MS)
            now_ns = time.monotonic_ns()
            self._tick(now_ns)
            if self.worker.stopping:
                return False
            if now_ns >= deadline_ns:
                if not self._stalled:
                    missing = [mark.decode() for mark in self.required - self.present]
                    self.worker.log.warning("frames_dropped", reason="a consumer stalls", missing=missing)
                self._stalled = True
                return False

    def _enter(self, state: State) -> None:
        self.state = state
        self._next_report_ns = 0
        self._tick(time.monotonic_ns())
        self.worker.log.info("source_" + state, frames=self.frames)

    def _end(self) -> None:
        self._send_block()
        if isinstance(self.driver, Reporting):
            self._last_report = self.driver.report()
        self._enter("ended")
        self.driver.close()

    # ------------------------------------------------------------ everything but frames

    def _tick(self, now_ns: int) -> None:
        self._next_tick_ns = now_ns + TICK_NS
        self._read_subscriptions()
        self.worker.serve_urgent(self._handlers)  # also while there are no frames, and before what came with them
        self.worker.serve(self._handlers)
        if isinstance(self.driver, OpenedInWith):
            self._notices.turn(self.driver.notices, now_ns)
        if self._enables and not (self.worker.stop_id or self._returned.asked):
            try:
                if self._returned.settled(now_ns, self._enable_ns):
                    self._handlers["enable"]({"arm": self._arm})
            except ControlError as error:
                self._enables = False
                text = "look at the arm and its drives; then `thetad control enable` switches them on"
                self.worker.event("not_enabled", f"not switched on at the start: {error.message}: {text}")
        if self.worker.heartbeat_due(now_ns):
            info: dict[str, Any] = {"state": self.state, "frames": self.frames, "dropped": self.dropped}
            info |= {"clipping": self._clipping()} | self._returned.report()
            if self._keeps_positions:
                info["stood"] = self._returned.stood(now_ns)
            if self.player is not None:
                info |= {"motion": self.player.state, "motion_s": self.player.time_s}
            if self.runs is not None:
                info["safety"] = self.runs.report()["state"]
            self.worker.heartbeat(now_ns, info)
        if now_ns >= self._next_report_ns:
            self._next_report_ns = now_ns + REPORT_NS
            self._report(now_ns)

    def _start(self, args: dict[str, Any]) -> dict[str, Any]:
        if self.state == "held":
            self.state = "waiting"
        return {"arm": args["arm"], "state": self.state}

    def _enable(self, args: dict[str, Any]) -> dict[str, Any]:
        driver = self._drives("enable")
        try:
            driver.enable()
        except CommandRefusedError as error:
            raise ControlError("unavailable", f"enable: {error}") from error
        if self.player is not None and self.player.state in ("stopped", "ended"):
            self.player.restart()
        return {"arm": args["arm"]}

    def _disable(self, args: dict[str, Any]) -> dict[str, Any]:
        driver = self._drives("disable")
        if self.player is not None:
            self.player.stop("the drives were switched off by request")
        if self.runs is not None:
            self.runs.off("the drives were switched off by request")
        driver.disable()
        return {"arm": args["arm"]}

    def _drives(self, verb: str) -> Commandable:
        if not isinstance(self.driver, Commandable):
            raise ControlError("bad_argument", f"{verb}: a {self.info.source} source has no drives")
        if self.state == "ended":
            raise ControlError("unavailable", f"{verb}: the stream has ended, and the bus is closed")
        return self.driver

    def _read_subscriptions(self) -> None:
        while readable(self.socket):
            parts = self.socket.recv_multipart()
            known = len(parts) == 1 and parts[0][:1] in (b"\x00", b"\x01")
            if not known:
                self.ignored += 1
            elif parts[0][1:] in self._status_topics:
                self._next_report_ns = 0  # a late subscriber need not wait
            elif parts[0][1:] in self.required:
                (self.present.add if parts[0][0] else self.present.discard)(parts[0][1:])
                self.worker.log.debug("consumer", topic=parts[0][1:].decode(), present=bool(parts[0][0]))

    def _report(self, now_ns: int) -> None:
        self._send_block()
        frames, since_ns = self._reported
        count, span_ns = self.frames - frames, now_ns - since_ns
        self._reported = (self.frames, now_ns)
        self._publish(
            "meta",
            {
                "arm": self._arm, "robot": self.robot, "joint_names": self.joint_names, "joint_units": self.units,
                "channels": list(self.info.channels), "rate_hz": self.info.rate_hz, "source": self.info.source,
                "lossless": self.info.lossless,
            },
        )  # fmt: skip
        self._publish_status()
        self._publish(
            "stats",
            {
                "rate_hz": count * 1e9 / span_ns if span_ns else 0.0,
                "cost_mean_us": (self.loop.execution.sum_ns - self._cost_ns) / count * 1e-3 if count else 0.0,
                "cost_max_us": self._cost_max_ns * 1e-3,
                "ignored": self.ignored,
            },
        )
        self._cost_ns, self._cost_max_ns = self.loop.execution.sum_ns, 0

    def _publish_status(self) -> None:
        self._publish(
            "status",
            {
                "state": self.state, "frames": self.frames, "dropped": self.dropped, "timeouts": self.timeouts,
                "waiting_for": sorted(mark.decode() for mark in self.required - self.present), **self._drive_status(),
            },
        )  # fmt: skip

    def _drive_status(self) -> dict[str, Any]:
        """Return the status of source and motion."""
        status: dict[str, Any] = {}
        if isinstance(self.driver, Reporting):
            status["source"] = self._last_report if self.state == "ended" else self.driver.report()
        if not self.info.lossless:  # a source that waits for others has no cycle to keep
            skipped = status.get("source", {}).get("overruns")  # counted by a loop of the driver's own
            status["loop"] = self.loop.report() | ({} if skipped is None else {"overruns": skipped})
        if self.torque_range is not None:
            status["clipped"] = self.torque_range.counts.tolist()
            status["clipping"] = self._clipping()
        status |= self._returned.report()
        if self.player is not None:
            status["motion"] = {"state": self.player.state, "reason": self.player.reason}
        if self.runs is not None:
            status["safety"] = self.runs.report()
        return status

    def _publish(self, kind: str, body: dict[str, Any]) -> None:
        t_ns, t_host_ns = self._time
        envelope = Envelope("acquisition", self.worker.epoch, self._seq[kind], t_ns, self.info.clock, t_host_ns)
        self._seq[kind] += 1
        try:
            self.socket.send_multipart(encode(BodyMessage(self._arm, kind, envelope, body)), zmq.NOBLOCK)
        except zmq.Again:
            self._next_report_ns = 0  # queues are full: try again at the next tick

    def close(self) -> None:
        """Send what was gathered, and release the driver."""
        try:
            self._send_block()
        finally:
            self.driver.close()


def main(worker: Worker) -> None:
    """Run the acquisition of the worker's arm."""
    acquisition = Acquisition(worker)
    try:
        acquisition.run()
    finally:
        acquisition.close()
