"""The gateway process: publishes the private messages of the arms' processes on TCP ports.

They pass through libzmq's own proxy, except frames, of which several come as one message, and those of the throttled
forwarder. What subscribers send stays in this process, and the supervisor restarts it if they make it too large.
"""

import threading
import time

import zmq

from service.gateway._forwarder import Forwarder, FrameForwarder, ThrottledForwarder
from service.security.authenticator import Authenticator
from service.security.keys import server_pair
from service.security.registry import Registry
from service.worker.worker import FRAME_QUEUE, POLL_MS, Worker


class RevokedError(RuntimeError):
    """A connected client has been revoked: only the end of the process disconnects it."""


def main(worker: Worker) -> None:
    """Run all forwarders until stopped."""
    settings = worker.config.daemon
    most = max((arm.publish.block_frames for arm in worker.config.arm), default=1)
    frames = (FrameForwarder if most > 1 else Forwarder)("frames", settings.frames_port, [], most)
    estimates = Forwarder("estimates", settings.estimates_port, [])
    for arm in worker.config.arm:
        frames.sources.append(worker.runtime.frames(arm.name))
        estimates.sources.append(worker.runtime.results(arm.name, "estimator"))
        if arm.recorder is not None:
            estimates.sources.append(worker.runtime.results(arm.name, "recorder"))
    forwarders: list[Forwarder] = [frames, estimates]
    if settings.mirror_port is not None:
        sources = [*frames.sources, *estimates.sources]
        forwarders.append(ThrottledForwarder("mirror", settings.mirror_port, sources, most, rate_hz=settings.mirror_hz))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pair = server_pair(worker.config.keys_dir) if settings.keyed else None
    authenticator = None
    if pair is not None:
        authenticator = Authenticator(context, Registry(worker.config.keys_dir), worker.log)
    threads = []
    poller = zmq.Poller()
    poller.register(worker.socket, zmq.POLLIN)
    if authenticator is not None:
        poller.register(authenticator.socket, zmq.POLLIN)
    try:
        for forwarder in forwarders:
            forwarder.open(context, settings.bind, FRAME_QUEUE, pair)
        for forwarder in forwarders:
            threads.append(threading.Thread(target=forwarder.run, name=forwarder.name))
            threads[-1].start()
        worker.ready(**{f"{forwarder.name}_port": forwarder.port for forwarder in forwarders})
        while not worker.stopping and all(thread.is_alive() for thread in threads):
            poller.poll(POLL_MS)
            now_ns = time.monotonic_ns()
            worker.serve({})
            if authenticator is not None:
                authenticator.serve()
                if names := authenticator.revoked():
                    raise RevokedError(f"clients that were connected have been revoked: {', '.join(names)}")
            if worker.heartbeat_due(now_ns):
                counts = {} if authenticator is None else {"authenticator": authenticator.describe()}
                connected = {forwarder.name: forwarder.connections() for forwarder in forwarders}
                worker.heartbeat(now_ns, {"state": "running", "connections": connected, **counts})
    finally:
        if authenticator is not None:
            authenticator.close()
        if threads:
            for forwarder in forwarders:
                forwarder.stop_counting()
            context.term()
            for thread in threads:
                thread.join()
        else:
            context.destroy(linger=0)
