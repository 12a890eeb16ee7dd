"""Processes that outlive the module of the tests that started them; the guard against leaks leaves them alone."""

#: Process ids of shared daemons; their descendants count too.
KEPT: set[int] = set()
