"""Random and spoilt layouts, and random images through the driver's decoding."""

import math
import random
import struct
from collections import Counter
from typing import Any

import numpy as np
from pydantic import ValidationError

from drivers.ethercat.config import DeviceTable, DriveTable, EthercatConfig
from drivers.ethercat.drive.process_data import ProcessData
from drivers.ethercat.drive.scaling import JointScaling, Ratings
from drivers.ethercat.pdo import RX_MEANINGS, TX_MEANINGS, LayoutError, PdoLayout

#: Images that a layout is tried with.
IMAGES_PER_LAYOUT = 50
RATINGS = Ratings(torque_nm=1.3, current_a=4.0)
RX = {"1600": ["6040:00:16 controlword", "607A:00:32 target_position", "60FF:00:32 target_velocity"]}
TX = {
    "1A00": ["6041:00:16 statusword", "6064:00:32 position", "606C:00:32 velocity", "0000:00:4", "3010:01:4"],
    "1A01": ["6077:00:16 torque", "6078:00:16 current", "603F:00:16 error_code", "2031:01:32 temperature f"],
}
_MEANINGS = [*TX_MEANINGS, *RX_MEANINGS, "", "nonsense"]
_CHANNELS = {
    "q": "position", "dq": "velocity", "tau": "torque", "current": "current", "q_motor": "motor_position",
    "temperature": "temperature",
}  # fmt: skip
_REALS = {32: "<f", 64: "<d"}


def random_entry(rng: random.Random, meaning: str) -> str:
    """Return an entry that may be right: a width, the meaning, perhaps a type."""
    bits = rng.choice([8, 16, 32, 64, 64, rng.randrange(0, 300)])
    # A counted object is never a real number: the driver takes statusword and position as integers.
    kinds = ["", "", " u", " i"] if meaning in ("statusword", "position") else ["", " u", " i", " f"]
    return f"{rng.randrange(65536):04X}:{rng.randrange(256):02X}:{bits} {meaning}{rng.choice(kinds) if meaning else ''}"


def spoil(rng: random.Random, pdos: dict[str, list[str]]) -> dict[str, list[str]]:
    """Change a layout here and there: entries left out, others put in, characters changed."""
    spoilt = {index: list(entries) for index, entries in pdos.items()}
    for _ in range(rng.randrange(4)):
        entries = spoilt[rng.choice(list(spoilt))]
        at, kind = rng.randrange(len(entries)) if entries else 0, rng.randrange(5)
        if not entries or kind == 0:
            entries.insert(at, random_entry(rng, rng.choice(_MEANINGS)))
        elif kind == 1:
            del entries[at]
        elif kind == 2:
            place = rng.randrange(len(entries[at]))
            entries[at] = entries[at][:place] + chr(rng.randrange(32, 300)) + entries[at][place + 1 :]
        else:
            entries[at] = random_entry(rng, [*entries[at].split(), ""][1])
    return spoilt


def random_device(rng: random.Random) -> DeviceTable | None:
    """Return a device with a spoilt layout; None if the configuration refuses it."""
    tables: dict[str, Any] = {
        "vendor_id": 1, "product_code": 1, "rx": spoil(rng, RX), "tx": spoil(rng, TX),
        "counts_per_rev": rng.choice([1, 4096, 2**32, 3_600_000]), "motor_counts_per_rev": 65536,
        "velocity_unit": rng.choice(["counts/s", "0.1counts/s", "rpm", "0.001rpm", "mrad/s"]),
        "position_side": rng.choice(["motor", "joint"]), "torque_unit": rng.choice(["permille", "mNm", "0.01Nm"]),
    }  # fmt: skip
    try:
        return DeviceTable.model_validate(tables)
    except ValidationError:
        return None


def by_hand(layout: PdoLayout, image: bytes, meaning: str) -> int | float:
    """Value of a meaning, bit by bit from the layout's entries."""
    number, place = int.from_bytes(image, "little"), 0
    for _, entries in layout.pdos:
        for entry in entries:
            if entry.meaning == meaning:
                raw = number >> place & (1 << entry.bits) - 1
                if entry.code in "fd":
                    value: float = struct.unpack(_REALS[entry.bits], raw.to_bytes(entry.bits // 8, "little"))[0]
                    return value
                return raw - (1 << entry.bits) if entry.code.islower() and raw >> entry.bits - 1 else raw
            place += entry.bits
    raise LookupError(meaning)


def check(data: ProcessData, layouts: list[PdoLayout], scaling: JointScaling, images: list[bytes]) -> None:
    """Decode images and compare with a decoding by hand; raises `AssertionError`."""
    with np.errstate(over="ignore", invalid="ignore"):  # reals that a drive sends may be anything
        channels = data.decode(images)
    joints = range(len(images))
    factors = {
        "q": (scaling.position, scaling.position_zero), "dq": (scaling.velocity, None), "tau": (scaling.torque, None),
        "current": (scaling.current, None), "q_motor": (scaling.motor_position, scaling.motor_zero),
        "temperature": (scaling.temperature, scaling.temperature_zero),
    }  # fmt: skip
    for channel, values in channels.items():
        assert values.shape == (len(images),)
        assert values.dtype == np.float64
        factor, zero = factors[channel]
        for joint in joints:
            raw = by_hand(layouts[joint], images[joint], _CHANNELS[channel])
            wanted = float(raw) * float(factor[joint]) - (0.0 if zero is None else float(zero[joint]))
            value = float(values[joint])
            assert value == wanted or (math.isnan(value) and math.isnan(wanted)), (channel, joint, raw)
            # Integers always make finite numbers; a real that a drive sends is passed on as it is.
            assert math.isfinite(value) or isinstance(raw, float), (channel, joint, raw)
    status = [by_hand(layouts[joint], images[joint], "statusword") for joint in joints]
    assert data.statuswords == status
    assert data.position_counts == [by_hand(layouts[joint], images[joint], "position") for joint in joints]


def fuzz(images: int, seed: int) -> Counter[str]:
    """Decode `images` images of random layouts; returns how often what happened."""
    rng = random.Random(seed)
    happened: Counter[str] = Counter()
    while happened["decoded"] < images:
        devices = [random_device(rng) for _ in range(rng.randrange(1, 4))]
        accepted = [device for device in devices if device is not None]
        happened["layouts refused"] += len(devices) - len(accepted)
        if not accepted:
            continue
        happened["layouts"] += len(accepted)
        drives = [
            DriveTable(
                joint=f"joint_{k}", device=f"device_{k}", gear_ratio=gear, sign=rng.choice([-1, 1]), offset_rad=0.3
            )
            for k, gear in enumerate(rng.uniform(0.5, 200.0) for _ in accepted)
        ]
        table = {f"device_{k}": device for k, device in enumerate(accepted)}
        config = EthercatConfig(interface="none0", mode="none", drive=drives, device=table)
        scaling = JointScaling(drives, accepted, [RATINGS] * len(accepted))
        data = ProcessData(config, scaling)
        layouts = [device.inputs for device in accepted]
        for _ in range(IMAGES_PER_LAYOUT):
            spread = [rng.randbytes(layout.size) for layout in layouts]
            if rng.random() < 0.1:  # all bits set, or none
                spread = [bytes([rng.choice([0, 255])]) * layout.size for layout in layouts]
            check(data, layouts, scaling, spread)
            happened["decoded"] += len(spread)
            wrong = [image + b"\0" if rng.random() < 0.5 else image[:-1] for image in spread]
            try:
                data.decode(wrong)
            except LayoutError:
                happened["wrong lengths refused"] += 1
            else:
                raise AssertionError(f"images of {[len(image) for image in wrong]} bytes were decoded")
        happened["reals"] += sum(entry.code in ("f", "d") for one in layouts for _, part in one.pdos for entry in part)
    return happened
