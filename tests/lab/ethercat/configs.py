"""Configurations to test with."""

from typing import Any

from drivers.ethercat.config import EthercatConfig

SERVO: dict[str, Any] = {
    "vendor_id": 0xE5A, "product_code": 0x1001, "revision": 0x10002,
    "rx": {"1600": ["6040:00:16 controlword", "607A:00:32 target_position", "6060:00:8 mode", "0000:00:8"]},
    "tx": {
        "1A00": [
            "6041:00:16 statusword",
            "6064:00:32 position",
            "606C:00:32 velocity",
            "6077:00:16 torque",
            "6078:00:16 current",
            "603F:00:16 error_code",
        ]
    },
    "counts_per_rev": 1_048_576,
}  # fmt: skip


def settings(n: int = 2, **changes: Any) -> dict[str, Any]:
    """Tables of a configuration with `n` drives of one kind."""
    tables: dict[str, Any] = {
        "interface": "veth0",
        "drive": [{"joint": f"joint_{k + 1}", "device": "servo", "gear_ratio": 101.0} for k in range(n)],
        "device": {"servo": dict(SERVO)},
    }
    tables.update(changes)
    return tables


def make_config(n: int = 2, **changes: Any) -> EthercatConfig:
    """Return a configuration with `n` drives of one kind."""
    return EthercatConfig.model_validate(settings(n, **changes))
