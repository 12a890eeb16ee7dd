"""Recordings of joint frames: MCAP files, and their arrays in memory.

Start with `recording`, which reads and describes files and re-exports the names most often used, then `format` (what a
file holds) and `data.Recording` (arrays in memory).

- `writer`: writes files so that a killed process loses at most one chunk, and recovers what it left.
- `mcap_scan`: reads damaged or incomplete files.  `span`: parts of a recording.  `join`: several recordings as one.
- `export`, `joint_states`: formats of other programs (ROS 2, Foxglove, CSV).
"""

__all__ = ["data", "export", "format", "join", "joint_states", "mcap_scan", "recording", "span", "writer"]
