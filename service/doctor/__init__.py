"""Checks whether a host can run the daemon and keep a cycle.

Where to start: `examine` runs all checks in the order of the report. `facts` reads the host's files without judging;
`_needs` derives the requirements of a configuration. `_host_checks` and `_site_checks` are functions from facts and
requirements to a `finding` (verdict, value, remedy). `cycle` measures how late an empty loop wakes.

docs/doctor.md explains each finding.
"""

__all__ = ["cycle", "examine", "facts", "finding"]
