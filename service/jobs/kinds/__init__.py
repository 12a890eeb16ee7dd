"""Kinds of jobs, one module each with a `KIND`; `find_kind` imports only the one that is requested.

`identify`, `validate` and `promote` (the chain of an automatic identification), `payload`, `calibrate`,
`elastic_joint`, `compare` (estimators on simulated truth), and `excite` with `excite_files` (its output),
`excite_known` (earlier motions, a URDF's bodies). Each translates a job's parameters into an operation
of `service.operations` and writes its results and report into the workspace.
"""

import importlib
from typing import Any

from service.operations.errors import OperationError
from service.operations.kind import Kind

__all__ = [
    "KINDS", "calibrate", "compare", "elastic_joint", "excite", "excite_files", "excite_known",
    "find_kind", "identify", "payload", "promote", "validate",
]  # fmt: skip

#: Names of the kinds, and of their modules.
KINDS = ("identify", "validate", "compare", "excite", "calibrate", "elastic_joint", "payload", "promote")


def find_kind(name: str) -> Kind[Any]:
    """Return the kind of that name; `OperationError` names those that there are."""
    if name not in KINDS:
        raise OperationError(f"no kind of job is called {name!r:.80}; there are {', '.join(KINDS)}")
    kind: Kind[Any] = importlib.import_module(f".{name}", __name__).KIND
    return kind
