"""Kinds of jobs: a name, typed parameters, and the function that does the work."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from drivers.files.table import StrictTable
from service.operations.errors import OperationError
from service.operations.parameter_types import flag_of
from service.operations.workspace import Input, Workspace


class Parameters(StrictTable):
    """Parameters of an operation: plain JSON values; unknown names and values out of range are refused."""


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class Outcome:
    """Result of a job; jobs that depend on one that is not `accepted` do not run."""

    verdict: str  # one word of the kind's own, such as "ok" or "not_explained"
    summary: str  # one line for people
    metrics: dict[str, Any] = field(default_factory=dict)  # plain JSON: as the command of this name prints it
    accepted: bool = True  # False: must not be used, such as a fit that does not explain its data


@dataclass(frozen=True)
class FanOut(Generic[P]):
    """Division of a job into independent parts, which may run in any order and on any machine.

    `split` gives one plain map for each part, `run_part` runs one and returns a plain JSON map with whole results and
    nothing that depends on time or place, `gather` makes the outcome of all, in the order of `split`.
    """

    split: Callable[[P], Sequence[dict[str, Any]]]
    run_part: Callable[[P, dict[str, Any], Workspace], dict[str, Any]]
    gather: Callable[[P, Sequence[dict[str, Any]], Workspace], Outcome]


@dataclass(frozen=True)
class Kind(Generic[P]):
    """One kind of job.

    `recordings` and `models` are names of parameters that refer to one; the queue resolves them, and the job opens them
    by `Workspace.recording` and `Workspace.model`.
    """

    name: str
    help: str
    parameters: type[P]
    run: Callable[[P, Workspace], Outcome]
    recordings: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    needs_arm: bool = False  # the job changes or concerns one arm of the daemon
    uses_active: bool = False  # the arm's active model at the start is the input `present`, if there is one
    fan_out: FanOut[P] | None = None  # for a job of several parts
    divided: Callable[[P], bool] = lambda _: False  # whether the parameters make it one

    def read(self, values: Mapping[str, Any], *, flags: bool = False) -> P:
        """Check parameters given as plain JSON; `OperationError` names every one that is wrong, or its option."""
        return read_parameters(self.name, self.parameters, values, flags=flags)

    def run_here(self, parameters: P, folder: Path, report: Callable[[float, str], None] = lambda *_: None) -> Outcome:
        """Run without a daemon, recordings and models being files, and write results to `folder`, which exists."""
        if self.needs_arm:
            raise OperationError(f"{self.name}: concerns an arm of a running daemon: submit it there")
        named = {name: getattr(parameters, name) for name in (*self.recordings, *self.models)}
        inputs = {name: Input.of(Path(value)) for name, value in named.items() if value is not None}
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return self.run(parameters, Workspace(folder, created, inputs=inputs, report=report))


def read_parameters(name: str, parameters: type[P], values: Mapping[str, Any], *, flags: bool = False) -> P:
    """Check the parameters of the kind `name`, given as plain JSON; raises `OperationError`."""
    try:
        return parameters.model_validate_json(json.dumps(dict(values)))
    except ValidationError as error:
        wrong = [
            _explained(e["loc"], e["type"], str(e["msg"]), e["input"], parameters if flags else None)
            for e in error.errors()
        ]
        known = ", ".join(parameters.model_fields)
        hint = f"; parameters of {name}: {known}" if any(e["type"] == "extra_forbidden" for e in error.errors()) else ""
        raise OperationError(f"{'' if flags else f'{name}: '}{'; '.join(wrong)}{hint}") from None
    except TypeError as error:
        raise OperationError(f"{name}: parameters are plain JSON values: {error}") from None


def _explained(
    place: tuple[int | str, ...], kind: str, message: str, given: object, options: type[Parameters] | None
) -> str:
    """Return one problem of a parameter, in words; it is called by its option in `options`, if these are given."""
    if options is not None and place:
        place = (flag_of(options, str(place[0])), *place[1:])
    parts = (f"[{part}]" if isinstance(part, int) else f".{part:.80}" for part in place)
    name = "".join(parts).removeprefix(".")
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{name}: is not a parameter"
    if kind == "missing":
        return f"{name}: is missing"
    if not name:
        return text  # a problem of several parameters names them itself
    shown = repr(given)
    return f"{name}: {text}, got {shown if len(shown) <= 60 else shown[:57] + '...'}"
