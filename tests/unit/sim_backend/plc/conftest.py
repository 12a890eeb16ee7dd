"""A simulated PLC at time 0, its variables, and a client."""

import pytest

from tests.lab.ads.plc_bench import Variables, make, parsed, positions
from tests.lab.ads.simple_client import PlainClient


@pytest.fixture
def plc():
    return make(parsed())


@pytest.fixture
def variables(plc):
    return Variables(plc)


@pytest.fixture
def start(variables):
    """Set positions of the axes, once they are enabled."""
    variables.enable()
    return positions(variables)


@pytest.fixture
def client():
    return PlainClient(make())
