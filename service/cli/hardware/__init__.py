"""Commands on buses and simulated hardware.

Where to start: `ethercat` inspects the slaves of an EtherCAT bus, with its text output in `_shared`; `ads`
inspects an ADS server such as a TwinCAT PLC. Both are read-only except for an explicit write. `sim` runs simulated
servo drives or a simulated PLC for rehearsals and tests.

The work itself is in `drivers.ethercat.diagnostics`, `drivers.ads.diagnostics` and `sim_backend`.
"""

__all__ = ["ads", "ethercat", "sim"]
