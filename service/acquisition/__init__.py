"""The acquisition: one process per arm that reads its driver and publishes its frames.

Start with `process`: `Acquisition.run` is the loop. `sources` makes the driver that the configuration names (replay,
EtherCAT, ADS, simulation) and checks it against the robot; `_torque_range` marks joints whose torque is clipped.

Each frame goes first to what moves the arm (`service.motion`), which commands the drives in the same cycle, and is then
published for estimator and recorder, in order with `meta` and `status` messages. Everything else (requests,
heartbeats, reports) happens in ticks between frames.
"""

__all__ = ["process", "sources"]
