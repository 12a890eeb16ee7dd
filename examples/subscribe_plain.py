"""Print live estimates with nothing but pyzmq and msgpack: python subscribe_plain.py [ENDPOINT] [ARM]."""

import sys

import msgpack
import zmq

endpoint, arm = [*sys.argv[1:], "tcp://127.0.0.1:9871", "demo"][:2] if len(sys.argv) < 3 else sys.argv[1:3]
socket = zmq.Context().socket(zmq.SUB)
socket.connect(endpoint)
socket.subscribe(f"{arm}/estimate")
while True:
    topic, payload = socket.recv_multipart()
    message = msgpack.unpackb(payload)
    print(f"{message['t']:9.3f} s  frames {message['frames']}  lost {message['lost']}  theta {message['theta']}")
