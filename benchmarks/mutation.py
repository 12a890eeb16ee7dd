"""Does the test suite find faults?  Runs hand-picked mutants against the tests that should kill them.

`benchmarks/mutants.toml` lists the mutants: one changed line each, and the test files that should notice.  A mutant is
edited in place in a scratch clone, its tests run, and the file is restored, times included.  Two runs compared tell
whether tests that were moved or rewritten find as much as before:

    python benchmarks/mutation.py --root /tmp/scratch --json before.json
    python benchmarks/mutation.py --compare before.json after.json

Each test file runs once unchanged first: what fails there kills nothing.  A source that has moved is found by the
mutated line, a test file by its name.  With `--json` a run that was broken off goes on where it ended.
Stale kernels never run, since Numba's cache is tied to the sources (`rt_core.jit`), but mutated ones replace good ones
on disk.  Mutants therefore work on a copy of the cache that the unchanged runs filled.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("rt_core", "drivers", "sim_backend", "service")
PYTEST = ("-q", "--tb=no", "-n", "0", "-p", "no:cacheprovider", "--timeout", "120")
RUN_S = 900  # longest time of all tests of a mutant: a kernel that loops for ever knows no timeout
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py.*?)(?: - .*)?$", re.MULTILINE)


class MutationError(RuntimeError):
    """A mutant that cannot be applied or tested, and why."""


@dataclass(frozen=True)
class Mutant:
    """One fault: the only occurrence of `old` becomes `new`."""

    id: str
    file: str
    old: str
    new: str
    kind: str
    tests: list[str]


def load_mutants(path: Path) -> list[Mutant]:
    """Read the table; raises `MutationError` for an id that comes twice."""
    found = [Mutant(**row) for row in tomllib.loads(path.read_text())["mutant"]]
    twice = [id for id, count in Counter(mutant.id for mutant in found).items() if count > 1]
    if twice:
        raise MutationError(f"{path}: twice: {', '.join(twice)}")
    return found


def find_source(root: Path, mutant: Mutant) -> Path:
    """Return the file that holds the mutated line: the one named, else the only one of the packages that has it."""
    named = root / mutant.file
    everywhere = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    for paths in ([named] if named.is_file() else [], everywhere):
        counts = {path: path.read_text(encoding="utf-8").count(mutant.old) for path in paths}
        found = [path for path, count in counts.items() if count]
        if found:
            if sum(counts.values()) > 1:
                raise MutationError(f"{mutant.id}: the line is not unique: {', '.join(map(str, found))}")
            return found[0]
    raise MutationError(f"{mutant.id}: the line to change is in no source: {mutant.old!r}")


def find_tests(root: Path, mutant: Mutant) -> list[str]:
    """Return the mutant's test files, by name where they have moved."""
    found = []
    for name in mutant.tests:
        places = [root / name] if (root / name).is_file() else list((root / "tests").rglob(Path(name).name))
        if len(places) != 1:
            raise MutationError(f"{mutant.id}: {name} is gone, and {len(places)} files have its name")
        found.append(places[0].relative_to(root).as_posix())
    return found


@contextmanager
def applied(root: Path, mutant: Mutant) -> Iterator[None]:
    """Edit the mutant's file, and restore content and times whatever happens; refuses a file that git calls changed."""
    path = find_source(root, mutant)
    state = subprocess.run(
        ["git", "-C", str(root), "status", "--porcelain", "--", str(path)], capture_output=True, text=True, check=True
    ).stdout
    if state:
        raise MutationError(f"{path}: git says {state.strip()!r}: mutants need a clean scratch clone")
    before, times = path.read_bytes(), path.stat()
    text = before.decode().replace(mutant.old, mutant.new)
    compile(text, f"{path}, {mutant.id}", "exec")  # a syntax error would pass for a kill
    try:
        path.write_text(text, encoding="utf-8")
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(root: Path, tests: list[str], cache: Path) -> tuple[list[str], bool, float]:
    """Run test files; returns the tests that failed, whether the run had to be ended, and its time [s]."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "NUMBA_CACHE_DIR": str(cache),
        "PYTHONDONTWRITEBYTECODE": "1",  # bytecode of a mutant of the same size and second would pass for the original
        "HYPOTHESIS_PROFILE": "ci",
    }
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *PYTEST, *tests], cwd=root, env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=RUN_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    failed = _FAILED.findall(said)
    if process.returncode > 2 or (process.returncode > 0 and not failed):
        raise MutationError(f"pytest ended with {process.returncode}: {said[-500:]}")
    return failed, process.returncode < 0, time.monotonic() - began


def run(mutants: list[Mutant], root: Path, cache: Path, out: Path | None, results: dict[str, Any]) -> None:
    """Run the mutants that have no row yet, those with the fastest tests first."""
    unchanged, rows = results.setdefault("unchanged", {}), results.setdefault("mutants", {})

    def note(mutant: Mutant, result: str, tests: list[str], reason: str = "", seconds: float = 0.0) -> None:
        package = "/".join(Path(mutant.file).parts[: 2 if mutant.file.startswith("rt_core") else 1])
        row = {"kind": mutant.kind, "package": package, "result": result, "tests": tests, "reason": reason}
        rows[mutant.id] = {**row, "seconds": round(seconds, 1)}
        save(out, results)
        print(_line(mutant.id, rows[mutant.id]), flush=True)

    waiting: list[tuple[Mutant, list[str]]] = []
    for mutant in mutants:
        if rows.get(mutant.id, {}).get("result") in ("killed", "survived"):
            continue
        try:
            find_source(root, mutant)
            waiting.append((mutant, find_tests(root, mutant)))
        except MutationError as error:
            note(mutant, "error", [], str(error))
    for name in sorted({name for _, tests in waiting for name in tests}):
        if name not in unchanged:
            failed, ended, seconds = run_tests(root, [name], cache)
            if ended:
                raise MutationError(f"{name}: crashes or takes too long on unchanged sources")
            unchanged[name] = {"failed": failed, "seconds": round(seconds, 1)}
            save(out, results)
            print(f"unchanged: {name}: {seconds:.1f} s, {len(failed)} failed", flush=True)
    waiting.sort(key=lambda item: sum(unchanged[name]["seconds"] for name in item[1]))
    for mutant, tests in waiting:
        bad = {test for name in tests for test in unchanged[name]["failed"]}
        copy = Path(tempfile.mkdtemp(prefix="mutant-", dir=cache.parent))
        try:
            shutil.copytree(cache, copy, copy_function=os.link, dirs_exist_ok=True)
            with applied(root, mutant):
                failed, ended, seconds = run_tests(root, tests, copy)
        except MutationError as error:
            note(mutant, "error", [], str(error))
            continue
        finally:
            shutil.rmtree(copy)
        killing = [test for test in failed if test not in bad]
        reason = "crashed, or took too long" if ended else ""
        note(mutant, "killed" if killing or ended else "survived", killing, reason, seconds)


def save(out: Path | None, results: Mapping[str, Any]) -> None:
    """Write the results, whole or not at all."""
    if out is not None:
        out.with_suffix(".new").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        out.with_suffix(".new").replace(out)


def _line(id: str, row: Mapping[str, Any]) -> str:
    shown = ", ".join(test.rpartition("::")[2] for test in row["tests"][:3]) or row["reason"]
    return f"| {id} | {row['kind']} | {row['result']} | {len(row['tests'])} | {row['seconds']} | {shown} |"


def table(results: Mapping[str, Any]) -> str:
    """Markdown table of a run, and its sums by package."""
    rows = results["mutants"]
    lines = ["| mutant | kind | result | tests | s | killed by |", "|---|---|---|---|---|---|"]
    lines += [_line(id, rows[id]) for id in sorted(rows)] + ["", "| package | killed | of |", "|---|---|---|"]
    for package in sorted({row["package"] for row in rows.values()}):
        own = [row["result"] for row in rows.values() if row["package"] == package]
        lines.append(f"| {package} | {own.count('killed')} | {len(own)} |")
    return "\n".join(lines)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Print kills before and after; returns whether nothing that was killed before survives now."""
    old, new = before["mutants"], after["mutants"]
    lost: list[str] = []
    print("| mutant | before | tests | after | tests |\n|---|---|---|---|---|")
    for id in sorted(old | new):
        a, b = (rows.get(id, {"result": "absent", "tests": []}) for rows in (old, new))
        if a["result"] == "killed" and b["result"] != "killed":
            lost.append(id)
        print(f"| {id} | {a['result']} | {len(a['tests'])} | {b['result']} | {len(b['tests'])} |")
    print(f"\n{len(lost)} of {len(old)} were killed before and are not now: {', '.join(lost) or 'none'}")
    return not lost


def main() -> int:
    """Run mutants, or compare two runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="scratch clone whose sources are changed and restored")
    parser.add_argument("--mutants", type=Path, default=Path(__file__).with_name("mutants.toml"), help="their table")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these alone, also if they have a row already")
    parser.add_argument("--json", type=Path, metavar="OUT", help="results; rows that are there already are kept")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="exit 1 if a kill was lost")
    given = parser.parse_args()
    if given.compare:
        return 0 if compare(*(json.loads(path.read_text()) for path in given.compare)) else 1
    root = Path(given.root or parser.error("--root is missing")).resolve()
    if Path(sys.prefix).is_relative_to(root):
        parser.error(f"{root} is where this environment lives, not a scratch clone")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file is restored
    mutants = [mutant for mutant in load_mutants(given.mutants) if not given.only or mutant.id in given.only]
    results: dict[str, Any] = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for id in given.only or ():
        results.get("mutants", {}).pop(id, None)
    cache = Path(tempfile.gettempdir(), "mutation-cache" + str(root).replace("/", "-"))
    cache.mkdir(exist_ok=True)
    run(mutants, root, cache, given.json, results)
    print("\n" + table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
