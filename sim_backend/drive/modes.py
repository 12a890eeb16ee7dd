"""Modes of operation: the cyclic modes of CiA 402 by the numbers of object 0x6060, and modes without torque."""

BRAKED = 0  # no torque, brake closed
OFF = 1  # no torque, brake open
CSP, CSV, CST = 8, 9, 10  # cyclic synchronous position, velocity, torque

MODES = {"csp": CSP, "csv": CSV, "cst": CST}
"""Modes of operation by their names in files."""
