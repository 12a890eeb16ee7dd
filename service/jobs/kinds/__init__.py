"""Kinds of jobs, one module each; a module is loaded when its kind is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from service.operations.kind import Kind
from service.operations.workspace import JobError

#: Module of `service.jobs.kinds` by the name of the kind; each has one `KIND`.
KINDS = {
    "identify": "identify",
    "validate": "validate",
    "compare": "compare",
    "excite": "excite",
    "calibrate": "calibrate",
    "elastic_joint": "elastic_joint",
    "payload": "payload",
    "promote": "promote",
}


def find_kind(name: str) -> Kind[Any]:
    """Return the kind of that name.

    Raises
    ------
    JobError
        There is none; the message names those that there are.
    """
    if name not in KINDS:
        raise JobError(f"no kind of job is called {name!r:.80}; there are {', '.join(KINDS)}")
    kind: Kind[Any] = importlib.import_module(f"service.jobs.kinds.{KINDS[name]}").KIND
    return kind
