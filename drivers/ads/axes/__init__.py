"""The axes of an arm behind a PLC: units and commands, without I/O.

Start with `axis_group.AxisGroup`, which enables, commands and stops the axes as one: it observes the PLC's head
(`link.program.Head`), takes targets, and returns what to write next.

- `setpoints`: targets by cycle, collected in buffers that the PLC plays with a constant lead.
- `scaling`: between the axes' units and SI units on the joint side.
"""

__all__ = ["axis_group", "scaling", "setpoints"]
