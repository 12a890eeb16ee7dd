"""Configuration of the daemon: one pydantic model per TOML table.

Where to start: `load` reads a file and checks it; `Config` holds `[daemon]` and `[jobs]` (`daemon`), and one
`[[arm]]` for each arm. The tables of an arm are in `arm_tables` (driver, motion, safety, realtime, publish, state,
recorder, elastic, reidentify); that of `[arm.guiding]` is `rt_core.settings.ZeroForceSettings`.

`arm_robot` loads the robot of an arm and its estimator's settings. docs/daemon.md describes the keys.
"""

__all__ = ["arm_robot", "arm_tables", "daemon", "load"]
