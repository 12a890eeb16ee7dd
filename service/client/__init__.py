"""Client API for other programs: subscribe to a daemon's messages, and make requests.

    from service.client import Subscriber

    with Subscriber("tcp://127.0.0.1:9871", ["panda/estimate"]) as subscriber:
        for message in subscriber:
            print(message.theta, message.std, subscriber.age_s(message))

Or queue jobs:

    from service.client import Control, Jobs

    with Control() as control:
        jobs = Jobs(control)
        queued = jobs.submit("identify", {"recording": Path("rec.mcap"), "robot": "franka_panda"})
        job = jobs.wait(queued["id"])
        print(job["state"], job["summary"] or job["reason"])

Where to start: `subscriber` receives messages, `control` makes single requests; `Jobs` and `Runs` are built on it.
`latency_monitor` measures the age of estimates. Importing this package loads neither numba nor any estimator.
"""

from service.client._jobs import Jobs
from service.client._runs import Runs
from service.client.control import CONTROL, ClientError, ClientTimeoutError, Control, NotAdmittedError, UnreachableError
from service.client.subscriber import ESTIMATES, FRAMES, StreamCounts, Subscriber
from service.protocol.control import ControlError
from service.protocol.messages import BodyMessage, EstimateMessage, FrameMessage, Message, TorqueMessage
from service.security.keys import ClientKey, client_key

__all__ = [
    "CONTROL", "ESTIMATES", "FRAMES", "BodyMessage", "ClientError", "ClientKey", "ClientTimeoutError", "Control",
    "ControlError", "EstimateMessage", "FrameMessage", "Jobs", "Message", "NotAdmittedError", "Runs", "StreamCounts",
    "Subscriber", "TorqueMessage", "UnreachableError", "client_key", "control", "latency_monitor", "subscriber",
]  # fmt: skip
