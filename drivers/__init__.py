"""Sources of joint frames, and the files that describe robots and hold recordings.

`driver` defines the interface of every source: a driver is opened, read frame by frame (`frame.JointFrame`, joint side,
SI units) and closed; some drivers also take commands.  Implementations are `ethercat`, `ads` and `replay`; the
simulated arm is in `sim_backend`.

Start with `driver` and `frame`, then read `replay`, the shortest implementation.  `files` holds the file formats:
recordings, imports of logs, robot descriptions.  `timing` has clock, sleep and histograms for real-time loops.
"""

__all__ = ["ads", "driver", "ethercat", "files", "frame", "replay", "timing"]
