"""`AdsConfig`: defaults and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from drivers.ads.config import AdsConfig, Target

MIN: dict[str, Any] = {"net_id": "5.80.201.232.1.1", "axis": [{"joint": "a"}]}


def test_defaults() -> None:
    config = AdsConfig.model_validate(MIN)
    assert config.target == Target("5.80.201.232.1.1")
    assert config.target.address == "5.80.201.232"
    assert not config.enable


def test_net_ids() -> None:
    for net_id in ("5.80.201.232.1.1", "0.0.0.0.0.0", "255.255.255.255.255.255"):
        assert AdsConfig.model_validate(MIN | {"net_id": net_id}).target.net_id == net_id
    for net_id in ("", "1.2.3.4", "1.2.3.4.5.6.7", "1.2.3.4.5.256", "1.2.3.4.5.", "1.2.3.4.5.x"):
        with pytest.raises(ValidationError, match="net_id"):
            AdsConfig.model_validate(MIN | {"net_id": net_id})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"axis": [{"joint": "a"}, {"joint": "a"}]}, "joint 'a' is given to 2 axes"),
        ({"axis": [{"joint": "a", "name": "X"}, {"joint": "b", "name": "x"}]}, "name 'x' is given to 2 axes"),
        ({"axis": [{"joint": "a", "torque_unit": "permille"}]}, "needs rated_torque_nm"),
        ({"axis": [{"joint": "a", "current_unit": "percent"}]}, "needs rated_current_a"),
        ({"axis": [{"joint": "a", "unit": "mm", "side": "motor"}]}, "needs a unit of angle"),
        ({"axis": [{"joint": "a", "position_min_rad": 1.0, "position_max_rad": 1.0}]}, "not below"),
        ({"enable": True, "mode": "none"}, 'needs mode = "csp"'),
        ({"axis": [{"joint": "a", "name": "X"}, {"joint": "b"}]}, "name is given to some axes only"),
        ({"axis": []}, "at least 1"),
        ({"port": 0}, "port"),
        ({"enable_timeout_ms": 7001.0}, "less than or equal to 7000"),
        ({"transfer": "push"}, "transfer"),
        ({"pol_ms": 5.0}, "pol_ms"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        AdsConfig.model_validate(MIN | changes)
