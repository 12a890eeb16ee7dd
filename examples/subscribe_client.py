"""Print live estimates with their names: python subscribe_client.py [ENDPOINT] [ARM]."""

import sys

from service.client import ESTIMATES, BodyMessage, EstimateMessage, Subscriber


def main(endpoint: str = ESTIMATES, arm: str = "demo") -> None:
    names: list[str] = []
    with Subscriber(endpoint, [f"{arm}/meta", f"{arm}/estimate"], timeout_s=30.0) as stream:
        for message in stream:
            if isinstance(message, BodyMessage):
                names = message.body["parameters"]
            elif isinstance(message, EstimateMessage) and names:
                parts = (
                    f"{name} = {value:.4g} ± {1.96 * std:.2g}"
                    for name, value, std, status in zip(names, message.theta, message.std, message.status, strict=True)
                    if status == "estimated"
                )
                head = f"{message.envelope.t_ns * 1e-9:9.3f} s  age {stream.age_s(message) * 1e3:.1f} ms"
                print(f"{head}  lost {stream.lost}  {', '.join(parts)}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
