"""Run a daemon as a child of this process: for commands that need one for a while, and for tests."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from service.config.load import Config


class LaunchError(RuntimeError):
    """The daemon did not become ready; the message is the daemon's."""


class DaemonProcess:
    """A daemon in a process of its own, which ends with this one; a `Config` is handed over as a file.

    Its log goes to the file `log`, by default where this process's stderr goes; `endpoints` are "frames", "estimates"
    and "control", once ready.
    """

    def __init__(self, config: Config | Path, log: Path | None = None) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="thetad-launch-")
        path = config if isinstance(config, Path) else Path(self._directory.name) / "config.json"
        if isinstance(config, Config):
            table = config.model_dump(mode="json", exclude={"base"}, exclude_unset=True)
            path.write_text(json.dumps(table), encoding="utf-8")
        self._path = path
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoints: dict[str, str] = {}

    @property
    def pid(self) -> int:
        """Process id of the supervisor; 0 before the start."""
        return 0 if self._process is None else self._process.pid

    def start(self, timeout_s: float = 300.0) -> Self:
        """Start the daemon, and wait; raises `LaunchError` if it ended, or is not ready within `timeout_s`."""
        command = [sys.executable, "-m", "service.supervisor.daemon", "--config", str(self._path), "--parent"]
        with contextlib.ExitStack() as stack:
            log = None if self._log is None else stack.enter_context(self._log.open("ab"))
            self._process = subprocess.Popen([*command, str(os.getpid())], stdout=subprocess.PIPE, stderr=log)
        line = self._first_line(timeout_s)
        late = {"event": "failed", "message": f"not ready within {timeout_s:g} s; try again: compiled kernels are kept"}
        announcement: dict[str, Any] = json.loads(line) if line else late
        if announcement["event"] != "ready":
            self.stop()
            raise LaunchError(announcement["message"])
        self.endpoints = announcement["endpoints"]
        return self

    def _first_line(self, timeout_s: float) -> bytes:
        stream = self._process.stdout if self._process is not None else None
        if stream is None:
            return b""
        deadline = time.monotonic() + timeout_s
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return b""
                chunk = os.read(stream.fileno(), 65536)
                if not chunk:
                    return json.dumps({"event": "failed", "message": "the daemon ended at once; see its log"}).encode()
                data += chunk
        return data

    def wait(self, timeout_s: float) -> int:
        """Wait until the daemon has ended by itself; return its exit code, or raise `TimeoutError`."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the daemon has not ended within {timeout_s:g} s") from error

    def stop(self, timeout_s: float = 10.0) -> int:
        """Stop the daemon and wait for its end; kill it after `timeout_s`. Returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            process.send_signal(signal.SIGTERM)
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()
        finally:
            if process.stdout is not None:
                process.stdout.close()
            self._directory.cleanup()

    def __enter__(self) -> Self:
        return self if self._process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
