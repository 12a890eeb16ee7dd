"""Print measured and predicted torque of the first joint: python subscribe_torque.py [ENDPOINT] [ARM] [COUNT]."""

import sys

import msgpack
import zmq

endpoint, arm, count = sys.argv[1:] + ["tcp://127.0.0.1:9871", "lab", "3"][len(sys.argv) - 1 :]
socket = zmq.Context().socket(zmq.SUB)
socket.connect(endpoint)
socket.subscribe(f"{arm}/torque")
for _ in range(int(count)):
    topic, payload = socket.recv_multipart()
    message = msgpack.unpackb(payload)
    measured, predicted = message["measured"][0], message["predicted"][0]
    print(f"{message['t']:.2f} s  measured {measured:.2f} N*m  predicted {predicted:.2f} N*m")
