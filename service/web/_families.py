"""Families of metrics: name, type, labels and help, in the order of the output.

`docs/metrics.md` has the same list. Names follow Prometheus' conventions: base units, counters end in `_total`. Labels
have few values: names of arms, joints and processes, and words of short lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Family:
    """One family; `name` is that of its samples, without the suffixes of a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


_ARM, _JOINT, _READER, _PROCESS = ("arm",), ("arm", "joint"), ("arm", "reader"), ("process",)

FAMILIES = (
    Family("thetad_build_info", "gauge", ("version", "python"), "Version of thetad and of Python; always 1."),
    Family("thetad_uptime_seconds", "gauge", (), "Time since the daemon was started."),
    Family("thetad_ready", "gauge", (), "1 when every process has been ready."),
    Family("thetad_supervisor_silence_seconds", "gauge", (), "Time since the supervisor was last heard."),
    Family("thetad_arm_ready", "gauge", _ARM, "1 while the arm is at work, as /readyz says."),
    Family("thetad_events_total", "counter", ("kind",), "Events of the daemon's processes, those of jobs left out."),
    # processes
    Family("thetad_process_up", "gauge", _PROCESS, "1 while the process is ready."),
    Family("thetad_process_restarts_total", "counter", _PROCESS, "How often the process had to be started again."),
    Family("thetad_process_silence_seconds", "gauge", _PROCESS, "Time since its last heartbeat."),
    Family("thetad_process_cpu_seconds_total", "counter", _PROCESS, "Processor time of the present process."),
    Family("thetad_process_resident_memory_bytes", "gauge", _PROCESS, "Resident memory."),
    Family("thetad_process_open_fds", "gauge", _PROCESS, "Open file descriptors."),
    Family("thetad_process_max_fds", "gauge", _PROCESS, "File descriptors that it may open."),
    # frames
    Family("thetad_source_state", "gauge", ("arm", "state"), "1 for the state that the source is in."),
    Family("thetad_frames_published_total", "counter", _ARM, "Frames that the acquisition published."),
    Family("thetad_frames_dropped_total", "counter", _ARM, "Frames not published, for a consumer stalled."),
    Family("thetad_frame_timeouts_total", "counter", _ARM, "Waits for a frame that none came in."),
    Family("thetad_frames_received_total", "counter", _READER, "Frames that the estimator or recorder received."),
    Family("thetad_frames_lost_total", "counter", _READER, "Cycles of the source that it received no frame of."),
    Family("thetad_frames_repeated_total", "counter", _READER, "Frames that came twice or late."),
    Family("thetad_frames_refused_total", "counter", _READER, "Messages that could not be decoded."),
    Family("thetad_source_epochs_total", "counter", _READER, "Starts of the source that it has seen."),
    Family("thetad_frames_unusable_total", "counter", _ARM, "Frames without position or torque."),
    # the loop
    Family("thetad_loop_nominal_period_seconds", "gauge", _ARM, "Period that the loop is to keep."),
    Family("thetad_loop_period_seconds", "histogram", _ARM, "From a frame in the acquisition's loop to the next."),
    Family("thetad_loop_execution_seconds", "histogram", _ARM, "From a frame to the end of its turn."),
    Family("thetad_loop_overruns_total", "counter", _ARM, "Turns longer than a period; on EtherCAT cycles skipped."),
    Family("thetad_bus_lost_cycles_total", "counter", _ARM, "Cycles of the bus or PLC without a frame."),
    Family("thetad_bus_recoveries_total", "counter", _ARM, "Recoveries of slaves, or connections to a PLC made anew."),
    # the estimator
    Family("thetad_estimator_updates_total", "counter", _ARM, "Updates of the estimate."),
    Family("thetad_estimator_step_mean_seconds", "gauge", _ARM, "Mean time for a frame in the last second."),
    Family("thetad_estimator_step_max_seconds", "gauge", _ARM, "Longest time for a frame in the last second."),
    Family("thetad_estimate_latency_seconds", "histogram", _ARM, "From a frame's arrival to the estimate it renewed."),
    Family("thetad_estimate_age_seconds", "gauge", _ARM, "Age of the newest frame in the newest estimate."),
    Family("thetad_joint_parameters", "gauge", ("arm", "joint", "status"), "Base parameters of a joint, by status."),
    Family("thetad_joint_innovation", "gauge", _JOINT, "Measured less predicted torque; NaN at rest [N*m or N]."),
    Family("thetad_joint_innovation_sigma", "gauge", _JOINT, "Usual size of the innovation [N*m or N]."),
    Family("thetad_joint_forgetting_factor", "gauge", _JOINT, "Forgetting factor for an update."),
    Family("thetad_joint_drifted", "gauge", _JOINT, "1 while the joint has drifted from the active model."),
    Family("thetad_state_unsaved", "gauge", _ARM, "1 while the estimator's state cannot be saved."),
    # the recorder
    Family("thetad_recorder_recording", "gauge", _ARM, "1 while frames are recorded."),
    Family("thetad_recorder_failed", "gauge", _ARM, "1 after recording has failed, until it is started again."),
    Family("thetad_recorder_frames_total", "counter", _ARM, "Frames written."),
    Family("thetad_recorder_bytes_total", "counter", _ARM, "Bytes written to recordings."),
    Family("thetad_recorder_files_total", "counter", _ARM, "Recordings begun."),
    # jobs
    Family("thetad_jobs", "gauge", ("kind", "state"), "Jobs in the queue's file, parts counted."),
    Family("thetad_jobs_stuck", "gauge", (), "1 while no job can run: queue, disk or what runs jobs has trouble."),
    # clients
    Family("thetad_gateway_connections", "gauge", ("stream",), "Connections of subscribers."),
    Family("thetad_control_requests_total", "counter", (), "Requests on the control socket."),
    Family("thetad_control_refused_total", "counter", (), "Messages on the control socket that were no request."),
)
