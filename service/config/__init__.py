"""Configuration of the daemon: one pydantic model per TOML table.

Where to start: `load` reads a file and checks it; `Config` holds `[daemon]` (`daemon`), `[jobs]` and
`[arm.reidentify]` (`jobs`), and one `[[arm]]` for each arm. The tables of an arm are in `arm_tables` (driver, motion,
safety, realtime, publish, state, recorder, elastic); that of `[arm.guiding]` is `rt_core.settings.ZeroForceSettings`.

`arm_robot` loads the robot of an arm and its estimator's settings; `methods` lists the names of all methods without
importing the numerics. docs/daemon.md describes the keys.
"""

__all__ = ["arm_robot", "arm_tables", "daemon", "jobs", "load", "methods"]
