"""What searches for an excitation reach: swarms over many seeds with a rank test, and peers at equal wall time.

figaroh's designer is not among the peers: it needs cyipopt, which comes without wheels and wants Ipopt to be built. It
is named as skipped.

python benchmarks/excitation_search.py [--seeds N] [--seconds S] [--json]
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from scipy.optimize import minimize
from scipy.stats import mannwhitneyu

from drivers.files.robots.file import load_robot
from rt_core.excitation.design import Designer, ExcitationDesign
from rt_core.excitation.search import Search
from rt_core.excitation.settings import ExcitationSettings, Optimiser
from rt_core.types import FloatArray
from service.protocol.json_values import json_values

#: Zhang et al. 2025 (HYP): 9 joints, 70 particles, 200 iterations, c1 = c2 = 2; a period of 20 s.
HYP = ExcitationSettings(scaled=False, f0_hz=0.05, harmonics=5, particles=70, iterations=200)
PUBLISHED = {"pso": 714.28, "pso_linear": 636.80, "tcs_pso": 564.32}
#: Stacked rigid base regressor in SI units, columns unscaled, full limits, rest at both ends.
RIGID = ExcitationSettings(
    columns="rigid", scaled=False, position_fraction=1.0, velocity_fraction=1.0, acceleration_fraction=1.0,
    effort_fraction=1.0,
)  # fmt: skip
TARGET = 20.0
SIGNIFICANT = 0.05
#: Iterations of a start of the gradient method where there is time.
DEEP = 600


def swarms(seeds: int = 20, iterations: int = 200) -> dict[str, Any]:
    """Condition numbers of PSO, linear-weight PSO, TCS-PSO and the gradient method on the 9-joint arm, by seed."""
    model = load_robot("arm9").model
    designer, by_derivatives = Designer(model, replace(HYP, iterations=iterations)), Designer(model, HYP)
    reached: dict[str, list[float]] = {}
    kept: dict[str, int] = {}
    seconds: dict[str, float] = {}
    evaluations: dict[str, float] = {}
    names: tuple[Optimiser, ...] = ("pso", "pso_linear", "tcs_pso", "gradient")
    for name in names:
        begin = time.perf_counter()
        used = by_derivatives if name == "gradient" else designer
        designs = [used.design(name, seed, pull=2.0) for seed in range(seeds)]
        seconds[name] = (time.perf_counter() - begin) / seeds
        reached[name] = [design.condition_number for design in designs]
        kept[name] = sum(design.accepted for design in designs)
        evaluations[name] = float(np.mean([design.searches[0].evaluations for design in designs]))
    lower = {
        f"{better} below {worse}": float(mannwhitneyu(reached[better], reached[worse], alternative="less").pvalue)
        for better, worse in (
            ("pso_linear", "pso"), ("tcs_pso", "pso_linear"), ("tcs_pso", "pso"), ("pso_linear", "tcs_pso"),
            ("gradient", "tcs_pso"),
        )
    }  # fmt: skip
    median = {name: float(np.median(values)) for name, values in reached.items()}
    order = median["tcs_pso"] < median["pso_linear"] < median["pso"]
    significant = all(lower[key] < SIGNIFICANT for key in ("pso_linear below pso", "tcs_pso below pso_linear"))
    return {
        "seeds": seeds, "reached": reached, "median": median, "kept": kept, "seconds": seconds,
        "evaluations": evaluations, "p_value": lower, "published": PUBLISHED,
        "published_order": "holds" if order and significant else "is not significant" if order else "does not hold",
    }  # fmt: skip


def full_limits(seeds: int = 10) -> list[dict[str, Any]]:
    """Condition number of the rigid base regressor by the gradient method, 7 and 6 joints, each seed."""
    found = []
    for robot in ("arm7", "ur10"):
        designer = Designer(load_robot(robot).model, RIGID)
        begin = time.perf_counter()
        designs = [designer.design("gradient", seed) for seed in range(seeds)]
        values = [design.condition_number for design in designs]
        found.append({
            "robot": robot, "joints": designer.model.n, "parameters": len(designer.excitation.layout),
            "reached": values,
            "kept": sum(design.accepted for design in designs),
            "seconds": (time.perf_counter() - begin) / seeds, "target": TARGET,
        })  # fmt: skip
    return found


class TimeUpError(Exception):
    """The wall time of a search is over."""


class Race:
    """Searches of the same space with the same evaluation for the same time, all judged in the same way."""

    def __init__(self, robot: str, seconds: float) -> None:
        self.designer = Designer(load_robot(robot).model, replace(RIGID, iterations=DEEP))
        self.seconds = seconds
        self.robot = robot

    def run(self, name: str, search: Callable[[Callable[[], None]], FloatArray | ExcitationDesign]) -> dict[str, Any]:
        """Run `search`, which calls its argument often, and judge what it found."""
        begin = time.perf_counter()
        until = begin + self.seconds

        def check() -> None:
            if time.perf_counter() > until:
                raise TimeUpError

        found = search(check)
        took = time.perf_counter() - begin
        if not isinstance(found, ExcitationDesign):
            record = Search(0, np.zeros(1, dtype=np.int64), np.zeros(1), 0, "cancelled")
            series = self.designer.space.series(found)
            found = self.designer.judge(series, "gradient", record)
            if not found.accepted:
                found = self.designer.judge(self.designer.within(series), "gradient", record)
        return {"name": name, "reached": found.condition_number, "kept": found.accepted, "seconds": took}

    def gradient(self, check: Callable[[], None]) -> ExcitationDesign:
        """Starts from the seeds 0, 1, ... for as long as there is time."""
        best: ExcitationDesign | None = None
        seed = 0
        while True:
            try:
                design = self.designer.design("gradient", seed, pulse=lambda *_: check())
            except TimeUpError:
                assert best is not None, "not one start was done in time"
                return best
            if design.accepted and (best is None or design.value < best.value):
                best = design
            seed += 1

    def cma_es(self, check: Callable[[], None]) -> FloatArray:
        """CMA-ES in the box, on the cost that the swarms minimise; again from another start when it has converged."""
        cma = importlib.import_module("cma")
        space, seed = self.designer.space, 0
        best, lowest = self.designer._start(0), np.inf
        width = space.upper - space.lower
        try:
            while True:
                start = (self.designer._start(seed) - space.lower) / width
                options = {"bounds": [0.0, 1.0], "seed": seed + 1, "verbose": -9, "verb_log": 0}
                strategy = cma.CMAEvolutionStrategy(start, 0.15, options)
                while not strategy.stop():
                    points = strategy.ask()
                    costs = []
                    for point in points:
                        check()
                        x = space.lower + width * np.asarray(point)
                        costs.append(float(self.designer.costs(x[None])[0]))
                        if costs[-1] < lowest:
                            best, lowest = x, costs[-1]
                    strategy.on_progress(points, costs)
                seed += 1
        except TimeUpError:
            return best

    def slsqp(self, check: Callable[[], None]) -> FloatArray:
        """SLSQP with the worst share of each limit as a constraint, all derivatives by SciPy's differences."""
        fused, space = self.designer.fused, self.designer.space
        best, lowest = self.designer._start(0), np.inf

        def cost(x: FloatArray) -> float:
            nonlocal best, lowest
            check()
            value, excess = fused.evaluate(space.stacked(x))
            if value + self.designer.slope * excess < lowest:
                best, lowest = x.copy(), value + self.designer.slope * excess
            return float(np.log(value))

        def left(x: FloatArray) -> FloatArray:
            check()
            return np.asarray(-fused.forward(space.stacked(x)).shares.max(axis=1))

        seed = 0
        try:
            while True:
                minimize(
                    cost, self.designer._start(seed), method="SLSQP", constraints={"type": "ineq", "fun": left},
                    options={"maxiter": 10_000},
                )  # fmt: skip
                seed += 1
        except TimeUpError:
            return best


def equal_time(robot: str = "arm7", seconds: float = 10.0) -> dict[str, Any]:
    """The gradient method, CMA-ES and SLSQP with differences, each for the same wall time."""
    race = Race(robot, seconds)
    race.designer.costs(race.designer._start(0)[None])
    race.designer.fused.forward(race.designer.space.stacked(race.designer._start(0)))
    entrants: list[tuple[str, Callable[[Callable[[], None]], FloatArray | ExcitationDesign]]] = [
        ("gradient", race.gradient), ("SLSQP with differences", race.slsqp)
    ]  # fmt: skip
    skipped = []
    if importlib.util.find_spec("cma") is None:
        skipped.append("CMA-ES: pip install cma")
    else:
        entrants.append(("CMA-ES", race.cma_es))
    absent = importlib.util.find_spec("cyipopt") is None
    skipped.append(
        "figaroh's designer: " + ("needs cyipopt" if absent else "cyipopt is there, but no race with it is written")
    )
    race.designer.design("gradient", 0)  # compiled
    return {"robot": robot, "budget_s": seconds, "results": [race.run(*one) for one in entrants], "skipped": skipped}


def table(result: dict[str, Any]) -> list[str]:
    """Lines for people."""
    s = result["swarms"]
    lines = [
        f"9 joints, {s['seeds']} seeds, condition number unscaled: {name} median {s['median'][name]:.1f} (lowest "
        f"{min(s['reached'][name]):.1f}, highest {max(s['reached'][name]):.1f}), limits kept {s['kept'][name]} times, "
        f"{s['evaluations'][name]:.0f} evaluations, {s['seconds'][name]:.1f} s each"
        + (f"; published {s['published'][name]:g}" if name in s["published"] else "")
        for name in s["median"]
    ]
    tests = ", ".join(f"{key}: p = {p:.2g}" for key, p in s["p_value"].items())
    lines.append(
        f"the published order PSO > linear weight > TCS-PSO {s['published_order']} on this arm (Mann-Whitney: {tests})"
    )
    lines += [
        f"{r['robot']}, {r['parameters']} rigid base parameters, SI units, unscaled, full limits, gradient method: "
        f"{min(r['reached']):.2f} to {max(r['reached']):.2f} over {len(r['reached'])} seeds (target {r['target']:g}), "
        f"limits kept {r['kept']} times, {r['seconds']:.1f} s each"
        for r in result["full_limits"]
    ]
    e = result["equal_time"]
    lines += [
        f"{e['robot']}, {e['budget_s']:g} s each: {r['name']} {r['reached']:.2f}"
        + ("" if r["kept"] else ", beyond limits")
        for r in e["results"]
    ]
    return lines + [f"skipped: {what}" for what in e["skipped"]]


def missed(result: dict[str, Any]) -> list[str]:
    """What misses a target."""
    found = [
        f"{r['robot']}: condition number {max(r['reached']):.1f} at worst, {r['kept']} of {len(r['reached'])} kept"
        for r in result["full_limits"]
        if max(r["reached"]) >= r["target"] or r["kept"] < len(r["reached"])
    ]
    own, *others = result["equal_time"]["results"]
    found += [
        f"{r['name']} reaches {r['reached']:.2f} in the time in which the gradient method reaches {own['reached']:.2f}"
        for r in others
        if r["kept"] and r["reached"] <= own["reached"]
    ]
    swarmed = result["swarms"]
    found += [
        f"{name}: limits kept on {kept} of {swarmed['seeds']} seeds"
        for name, kept in swarmed["kept"].items()
        if kept < swarmed["seeds"]
    ]
    median = swarmed["median"]
    if median["gradient"] >= min(value for name, value in median.items() if name != "gradient"):
        found.append("a swarm's median is below that of the gradient method")
    return found


def run(seeds: int = 20, seconds: float = 10.0, iterations: int = 200) -> dict[str, Any]:
    """Everything."""
    return {
        "full_limits": full_limits(min(seeds, 10)),
        "equal_time": equal_time(seconds=seconds),
        "swarms": swarms(seeds, iterations),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0, help="wall time of each search that is compared")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    arguments = parser.parse_args()
    result = run(arguments.seeds, arguments.seconds)
    for line in table(result):
        print(line, file=sys.stderr if arguments.json else sys.stdout)
    if arguments.json:
        sys.stdout.write(json.dumps(json_values(result)) + "\n")
    problems = missed(result)
    for line in problems:
        print(f"MISSED: {line}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
