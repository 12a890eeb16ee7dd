"""The gateway process: what the arms' processes publish privately, made public on TCP ports.

The messages pass through libzmq's own proxy, one thread for each port, and never through Python; only those of the
mirror do.  Nothing passes the other way: what subscribers send stays in this process, and the supervisor starts it
anew if they make it too large.
"""

from __future__ import annotations

import threading
import time

import zmq

from service.gateway._forwarder import Forwarder
from service.gateway._throttled_forwarder import ThrottledForwarder
from service.security.authenticator import Authenticator
from service.security.keys import server_pair
from service.security.registry import Registry
from service.worker.worker import FRAME_QUEUE, POLL_MS, Worker


class RevokedError(RuntimeError):
    """A client that is connected has been revoked: only an end of the process hangs up on it."""


def main(child: Worker) -> None:
    """Run all lanes until told to stop."""
    settings = child.config.daemon
    frames = Forwarder("frames", settings.frames_port, [])
    estimates = Forwarder("estimates", settings.estimates_port, [])
    for arm in child.config.arm:
        frames.sources.append(child.runtime.frames(arm.name))
        estimates.sources.append(child.runtime.results(arm.name, "estimator"))
        if arm.recorder is not None:
            estimates.sources.append(child.runtime.results(arm.name, "recorder"))
    lanes = [frames, estimates]
    if settings.mirror_port is not None:
        sources = [*frames.sources, *estimates.sources]
        lanes.append(ThrottledForwarder("mirror", settings.mirror_port, sources, rate_hz=settings.mirror_hz))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pair = server_pair(child.config.keys_dir) if settings.keyed else None
    authenticator = None
    if pair is not None:
        authenticator = Authenticator(context, Registry(child.config.keys_dir), child.log)
    threads = []
    poller = zmq.Poller()
    poller.register(child.socket, zmq.POLLIN)
    if authenticator is not None:
        poller.register(authenticator.socket, zmq.POLLIN)
    try:
        for lane in lanes:
            lane.open(context, settings.bind, FRAME_QUEUE, pair)
        for lane in lanes:
            threads.append(threading.Thread(target=lane.run, name=lane.name))
            threads[-1].start()
        child.ready(**{f"{lane.name}_port": lane.port for lane in lanes})
        while not child.stopping and all(thread.is_alive() for thread in threads):
            poller.poll(POLL_MS)
            now_ns = time.monotonic_ns()
            child.serve({})
            if authenticator is not None:
                authenticator.serve()
                if names := authenticator.revoked():
                    raise RevokedError(f"clients that were connected have been revoked: {', '.join(names)}")
            if child.beat_due(now_ns):
                counts = {} if authenticator is None else {"authenticator": authenticator.describe()}
                connected = {lane.name: lane.connections() for lane in lanes}
                child.beat(now_ns, {"state": "running", "connections": connected, **counts})
    finally:
        if authenticator is not None:
            authenticator.close()
        if threads:
            for lane in lanes:
                lane.stop_counting()
            context.term()
            for thread in threads:
                thread.join()
        else:
            context.destroy(linger=0)
