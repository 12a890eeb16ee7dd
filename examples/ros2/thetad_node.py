"""A ROS 2 node that republishes a thetad daemon: python3 thetad_node.py [FRAMES_ENDPOINT ESTIMATES_ENDPOINT]."""

import sys

import rclpy
import zmq
from rosidl_runtime_py import set_message_fields
from rosidl_runtime_py.utilities import get_message
from thetad_messages import Converter

endpoints = sys.argv[1:3] or ["tcp://127.0.0.1:9870", "tcp://127.0.0.1:9871"]
socket = zmq.Context().socket(zmq.SUB)
for endpoint in endpoints:
    socket.connect(endpoint)
socket.subscribe("")
rclpy.init()
node = rclpy.create_node("thetad")
converter, publishers = Converter(), {}
while rclpy.ok():
    if not socket.poll(100):
        continue
    for topic, name, fields in converter.convert(*socket.recv_multipart()):
        if topic not in publishers:
            publishers[topic] = node.create_publisher(get_message(name), topic, 10)
        message = get_message(name)()
        set_message_fields(message, fields)
        stamped = getattr(message, "header", message)
        if hasattr(stamped, "stamp"):
            stamped.stamp = node.get_clock().now().to_msg()
        publishers[topic].publish(message)
