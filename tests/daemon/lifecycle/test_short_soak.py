"""A short soak of a whole daemon."""

import json
from pathlib import Path

import pytest

from benchmarks.service_soak import CLIENTS, run, table

SHORT_S = 15.0
FAULTS = 3
PATIENCE_S = 200.0  # the verdict rests on counts: how long a restart takes is the machine's


@pytest.mark.timeout(1300)  # longer than the soak waits for its faults
def test_a_short_soak(tmp_path: Path) -> None:
    """With clients, jobs and some faults: only faults cause losses, and the daemon recovers from all of them."""
    plot = tmp_path / "soak.png"
    result = run(
        SHORT_S, arms=("space6",), spacing_s=0.3, seed=3, least_faults=FAULTS, patience_s=PATIENCE_S, plot=plot
    )
    text = table(result)
    assert result["problems"] == [], text
    assert sum(result["faults"].values()) >= FAULTS, text
    assert result["losses"]["unexplained"] == {}
    for name in CLIENTS:
        assert name in ("sleeper", "slow") or result["latency_s"][name]["count"] > 0, (name, text)
    assert result["dashboard"]["answers"]["/api/session 200"] > 0
    assert result["dashboard"]["updates"] > 0
    assert result["recordings"]["space6"]["frames"] > 0
    assert plot.stat().st_size > 10_000
    json.dumps(result)
