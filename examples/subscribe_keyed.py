"""Print live estimates of a daemon that asks for a key: python subscribe_keyed.py KEY_FILE [ENDPOINT] [ARM]."""

import re
import sys
from pathlib import Path

import msgpack
import zmq

path, endpoint, arm = sys.argv[1:] + ["tcp://127.0.0.1:9871", "demo"][len(sys.argv) - 2 :]
key = dict(re.findall(rb'^ *([a-z-]+) *= *"(.*)"', Path(path).read_bytes(), re.MULTILINE))
socket = zmq.Context().socket(zmq.SUB)
socket.curve_serverkey, socket.curve_publickey = key[b"server-key"], key[b"public-key"]
socket.curve_secretkey = key[b"secret-key"]
socket.connect(endpoint)
socket.subscribe(f"{arm}/estimate")
while True:
    message = msgpack.unpackb(socket.recv_multipart()[1])
    print(f"{message['t']:9.3f} s  frames {message['frames']}  lost {message['lost']}  theta {message['theta']}")
