"""Judge the result of `thetad demo --json`: no frame lost, both models predict, the truth lies within the intervals."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(path: str) -> int:
    """Return the exit code: 0 if the demo kept its promises, 1 otherwise."""
    result = json.loads(Path(path).read_text())
    received, lost = result["frames"]["received"], result["frames"]["lost"]
    worst = {name: min(result[name]["R"]) for name in ("online", "batch")}
    coverage = result["coverage_95"]
    print(f"{received} frames, {lost} lost; worst R online {worst['online']:.4f}, batch {worst['batch']:.4f}; "
          f"{coverage:.0%} of the true parameters within their 95 % intervals")  # fmt: skip
    return 0 if received > 0 and lost == 0 and min(worst.values()) > 0.97 and coverage >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
