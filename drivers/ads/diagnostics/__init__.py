"""Inspection of an ADS server, for `thetad ads`.

`inspect` has a function for each command: each opens a connection of its own and returns plain data.

- `device_info`, `symbols`: name and state of the server; its variables.
- `read_symbol`, `write_symbol`: one variable of any type.
- `check`: whether an arm could be read, with rate, clock and round trips.
"""

__all__ = ["inspect"]
