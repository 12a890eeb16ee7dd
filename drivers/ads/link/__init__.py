"""Connection to a controller over ADS.

Only `link` uses pyads.  Start with `link.Link`, which opens a connection and sends requests, and
`program.PlcProgram`, which reads and writes the variables of one PLC program.

- `symbols`, `data_types`: symbols and types as a server uploads them, and their values.
- `_matching` compares the PLC's declarations with `drivers.ads.layout`.
- `port_probe`: whether a controller accepts connections at all, without the ADS library.
"""

__all__ = ["data_types", "link", "port_probe", "program", "symbols"]
