"""Judge the result of `thetad demo --json`: no frame lost, both models predict, the truth lies within the intervals.

Exit code 3: the rest is not reached, the account of the bus is right, and the machine kept the loop from so many of its
cycles that it may be why.
"""

import json
import sys
from pathlib import Path

STARVED = 0.005  # share of the cycles


def main(path: str) -> int:
    """Return the exit code: 0 if the demo kept its promises, 1 if not, 3 if the machine did not let it."""
    result = json.loads(Path(path).read_text())
    received, lost, bus = result["frames"]["received"], result["frames"]["lost"], result["bus"]
    print(f"{received} frames, {lost} lost")
    if not (received > 0 and lost == 0 and (bus is None or bus_accounts(result))):
        return 1
    worst = {name: min(result[name]["R"]) for name in ("online", "batch")}
    coverage = result["coverage_95"]
    print(f"worst R online {worst['online']:.4f}, batch {worst['batch']:.4f}; "
          f"{coverage:.0%} of the true parameters within their 95 % intervals")  # fmt: skip
    if min(worst.values()) > 0.97 and coverage >= 0.9:
        return 0
    if bus is None or missed_share(bus) <= STARVED:
        return 1
    print(f"starved: {missed_share(bus):.1%} of the cycles missed")
    return 3


def missed_share(bus: dict) -> float:
    """Share of the cycles without a frame."""
    missed = bus.get("overruns", 0) + bus["lost_cycles"]
    return missed / (missed + bus["frames"])


def bus_accounts(result: dict) -> bool:
    """Print the bus's timing; return whether the arm was on and each cycle is a frame or was counted as none."""
    bus, frames = result["bus"], result["frames"]
    counted = {name: bus[name] for name in ("frames", "overruns", "lost_cycles", "wkc_errors", "blocks", "block_ms")
               if name in bus}  # fmt: skip
    print(f"{'on' if bus['enabled'] else 'OFF'}; {counted}; gaps of {frames['gaps']} in the frames; "
          f"{frames['recorded']} recorded")  # fmt: skip
    rows = {**bus["timing"], "frame to estimate": result["latency_us"]}
    if result["empty_loop_us"]:
        rows["empty loop"] = result["empty_loop_us"]
    for name, row in rows.items():
        cells = (f"{key[:-3]:>6s} {row[key]:8.0f} us" for key in ("p50_us", "p99_us", "p999_us", "max_us"))
        print(f"{name:18s}" + "".join(cells))
    complete = frames["sent"] == frames["received"] == frames["recorded"]
    return bus["enabled"] and complete and frames["gaps"] <= bus.get("overruns", 0) + bus["lost_cycles"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
