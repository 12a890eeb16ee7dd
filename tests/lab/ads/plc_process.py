"""A simulated PLC as a process of its own: changes of its settings as JSON in, its address as the first argument."""

import json
import sys
import time

from sim_backend.plc.build import build_plc
from sim_backend.plc.server import Server
from tests.lab.ads.configs import plc

if __name__ == "__main__":
    address, changes = sys.argv[1], json.loads(sys.argv[2])
    server = Server(build_plc(plc(**changes), time.monotonic_ns()), address)
    server.run(ready=lambda: print("ready", flush=True))
    server.close()
