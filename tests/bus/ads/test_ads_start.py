"""What is wrong at a start: one error each, that says what to do."""

from collections.abc import Callable
from typing import Any

import pytest

from drivers.ads._errors import AdsSymbolError, LayoutMismatchError
from drivers.ads.config import AdsConfig
from drivers.ads.driver import AdsDriver
from drivers.ads.link.link import Link
from drivers.driver import DriverConfigError, DriverConnectionError, DriverError
from sim_backend.plc._plc import SimulatedPlc
from sim_backend.plc._variables import Alteration
from tests.lab.ads.configs import config
from tests.lab.ads.plcs import RunningPlc, new_address, running_plc


def refusal(config: AdsConfig, kind: type[DriverError]) -> str:
    driver = AdsDriver(config)
    with pytest.raises(kind) as caught:
        driver.open()
    assert not Link._net_ids, "the controller is free for another try"
    return str(caught.value)


def test_nobody_there() -> None:
    text = refusal(config(new_address()), DriverConnectionError)
    assert "TCP port 48898" in text
    assert "firewall" in text

    assert "is not known" in refusal(config("nobody.invalid"), DriverConnectionError)


def test_wrong_net_id_or_port(shared_plc: RunningPlc) -> None:
    text = refusal(config(shared_plc.address, net_id="1.2.3.4.1.1"), DriverConnectionError)
    assert "net_id must be its own" in text
    assert "851, 852" in refusal(config(shared_plc.address, port=852), DriverConnectionError)


def test_wrong_net_id_of_a_controller_that_keeps_silent() -> None:
    with running_plc(unknown_net_id="silent") as plc:
        text = refusal(config(plc.address, net_id="1.2.3.4.1.1", timeout_ms=100.0), DriverConnectionError)
    assert "see that net_id is the controller's" in text


def test_no_route(own_plc: RunningPlc) -> None:
    own_plc.do(lambda p: p.refuse_routes())
    text = refusal(config(own_plc.address, timeout_ms=200.0), DriverConnectionError)
    assert "no route back" in text
    assert "AMS Net ID 127.0.0.1.1.1, address 127." in text


def test_stopped_and_config_mode(own_plc: RunningPlc) -> None:
    own_plc.do(lambda p: p.stop())
    assert "in stop mode: start the PLC program" in refusal(config(own_plc.address), DriverConnectionError)
    own_plc.do(lambda p: p.config_mode())
    assert "activate the configuration" in refusal(config(own_plc.address), DriverConnectionError)


def test_missing_list_names_where_it_is() -> None:
    with running_plc(variables="GVL_Arm") as plc:
        text = refusal(config(plc.address), AdsSymbolError)
    assert "GVL_Theta.stInfo" in text
    assert "set variables = 'GVL_Arm'" in text


@pytest.mark.parametrize(
    ("alteration", "named"),
    [
        (Alteration("ST_ThetaAxis", "fTorque", "LREAL"), "ST_ThetaAxis.fTorque differs: it is LREAL, REAL is expected"),
        (Alteration("ST_ThetaHead", "nState", None), "ST_ThetaHead.nState differs: it is not there"),
        (Alteration("ST_ThetaInfo", "nAxes", "ULINT"), "ST_ThetaInfo.nAxes differs: it is ULINT, UDINT is expected"),
    ],
)
@pytest.mark.parametrize("uploaded", [True, False])
def test_another_type_is_named(own_plc: RunningPlc, alteration: Alteration, named: str, uploaded: bool) -> None:
    def alter(p: SimulatedPlc) -> None:
        p.online_change([alteration])
        p.services.types_uploaded = uploaded

    own_plc.do(alter)
    text = refusal(config(own_plc.address), LayoutMismatchError if uploaded else DriverConfigError)
    if uploaded or alteration.type is not None:
        assert named in text
    else:
        assert "stHead.nState" in text


def _axes(**changes: Any) -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = config().model_dump()["axis"]
    tables[0].update(changes)
    return tables


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"axis": _axes(name="Nose")}, "the PLC has no axis 'Nose'; it has: Base, Shoulder"),
        ({"axis": _axes()[:4]}, "list all axes"),
        ({"lead_ms": 395.0}, "holds 400 set positions"),
        ({"lead_ms": 15.0}, "less than two blocks of 10 samples and three times poll_ms"),
        ({"poll_ms": 150.0}, "heartbeat time of 200 ms"),
    ],
)
def test_configuration_that_does_not_fit(shared_plc: RunningPlc, changes: dict[str, Any], text: str) -> None:
    assert text in refusal(config(shared_plc.address, **changes), DriverConfigError)


@pytest.mark.parametrize(
    ("plc_changes", "changes", "text"),
    [
        ({"channels": ["q", "dq", "tau"]}, {}, "add CHANNEL_SETPOINT"),
        ({"blocks": 2}, {}, "has 2 blocks, 3 are the least"),
        ({"blocks": 4}, {"poll_ms": 25.0}, "longer than the 20 ms for which blocks stay"),
        ({"cycle_us": 1000}, {"poll_ms": 50.0, "lead_ms": 100.0}, "three times poll_ms = 50, which are 172 ms"),
    ],
)
def test_plc_that_does_not_fit(plc_changes: dict[str, Any], changes: dict[str, Any], text: str) -> None:
    with running_plc(**plc_changes) as plc:
        assert text in refusal(config(plc.address, **changes), DriverConfigError)
        assert plc.do(lambda p: p.services.handles.count) == 0


def test_positions_alone_can_be_listened_to() -> None:
    with running_plc(channels=["q"]) as plc, AdsDriver(config(plc.address, mode="none")) as driver:
        assert driver.read(5.0).setpoint is None


@pytest.mark.parametrize(
    ("time_100ns", "text"),
    [
        (lambda _: 0, "= 0 is not within the years 2000 to 2200"),
        (lambda _: 133_000_000_000_000_000, "does not advance"),
    ],
)
def test_time_that_is_none(own_plc: RunningPlc, time_100ns: Callable[[int], int], text: str) -> None:
    def give(p: SimulatedPlc) -> None:
        real = p.clock.time_100ns
        p.clock.time_100ns = lambda cycle: time_100ns(real(cycle))  # type: ignore[method-assign]

    own_plc.do(give)
    found = refusal(config(own_plc.address), DriverConfigError)
    assert "input nTime" in found
    assert text in found


def test_program_that_counts_nothing(own_plc: RunningPlc) -> None:
    own_plc.do(lambda p: p.exceed_task(100_000))
    assert "counts no cycles" in refusal(config(own_plc.address), DriverConnectionError)


def test_two_connections_to_one_controller_are_refused(shared_plc: RunningPlc) -> None:
    with AdsDriver(config(shared_plc.address)):
        other = AdsDriver(config(shared_plc.address))
        with pytest.raises(DriverError, match="another connection of this process"):
            other.open()
        other.close()
