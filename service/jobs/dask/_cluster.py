"""Connection to a Dask cluster, in a thread of its own that may block.

It reconnects when the connection is lost, with growing delays. Every second it lists the workers. A new worker, or one
where a run failed, is checked first, and gets runs only if it has the same code as this process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from service.io.log import Log, get_log
from service.jobs.execution.code_version import code_version

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_S = 5.0
ANSWER_S = 10.0  # without an answer for so long the scheduler counts as lost
CHECK_S = 60.0  # for a worker to report its code version; the first time it imports that
LOOK_S = 1.0
_POLL_S = 0.05
_RETRY_S = (0.5, 30.0)  # before the second attempt to connect, and the longest, for it doubles
_REST_S = (5.0, 300.0)  # of a worker where a run failed, in the same way
_CLOSE_S = 5.0
#: Errors of connecting besides `OSError`: other versions of Dask, and TLS that is not set up.
_REFUSALS = (OSError, ImportError, RuntimeError, TypeError, ValueError)


@dataclass
class WorkerNode:
    """A worker of the cluster; `refused` is why it gets no runs, empty only after a successful check."""

    address: str
    directory: str  # of its own, made at its start: distinguishes it from another at the same address
    threads: int
    serving: bool
    refused: str
    barred: bool = False  # refused for good
    rests_until: float = 0.0
    rest_s: float = 0.0  # length of its last rest
    known: set[str] = field(default_factory=set)  # hashes of inputs that were sent there
    check: asyncio.Task[None] | None = field(default=None, repr=False, compare=False)  # under way, and still valid

    def bar(self, why: str) -> None:
        """Exclude the worker for good."""
        self.refused, self.barred, self.check = why, True, None

    def rest(self, why: str) -> None:
        """Exclude the worker for a while, longer each time, and then until another check."""
        if self.barred:
            return
        self.refused, self.check = why, None
        self.rest_s = min(max(2.0 * self.rest_s, _REST_S[0]), _REST_S[1])
        self.rests_until = time.monotonic() + self.rest_s

    def rested(self) -> bool:
        """Return whether another check is due."""
        return not self.barred and 0.0 < self.rests_until < time.monotonic()

    def usable(self) -> bool:
        """Return whether runs can be sent there."""
        return self.serving and not self.refused


class VersionError(Exception):
    """The scheduler has another version of Dask."""


class TaskError(Exception):
    """A task failed because of the cluster; the message has the reason."""


class DroppedError(TaskError):
    """A task failed, and not because of the worker."""


class Cluster:
    """The workers of one scheduler, at an address such as "tcp://10.0.0.5:8786", and tasks on them.

    In the thread of the connection, `on_event` takes messages of workers under `topic`, and some of Dask's own;
    `on_lost` a worker that is gone and why; `on_trouble` why no worker can be used, or "", at each change.
    """

    def __init__(
        self, scheduler: str, on_event: Callable[[Mapping[str, Any]], None], on_lost: Callable[[WorkerNode, str], None],
        on_trouble: Callable[[str], None],
    ) -> None:  # fmt: skip
        import dask

        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # `trouble` has it in one line instead of a page
        # Inputs are sent with the run that needs them; Dask would warn of each large one.
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
        self.scheduler = scheduler
        self.topic = ""  # of the connection
        self.trouble = ""
        self.code = code_version()
        self._client: Client | None = None
        self._nodes: dict[str, WorkerNode] = {}
        self._lock = threading.Lock()
        self._on_event, self._on_lost, self._on_trouble = on_event, on_lost, on_trouble
        self._log: Log = get_log("jobs", scheduler=scheduler)
        self._set_trouble(f"connecting to the scheduler at {scheduler}")
        self._checks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._main: asyncio.Task[None] | None = None
        self._delay_s = _RETRY_S[0]
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="dask", daemon=True)
        self._thread.start()

    def nodes(self) -> list[WorkerNode]:
        """Return the workers that can be used now."""
        with self._lock:
            return [node for node in self._nodes.values() if node.usable()]

    def ready(self, node: WorkerNode) -> bool:
        """Return whether a worker is there and can be used."""
        with self._lock:
            return self._nodes.get(node.address) is node and node.usable()

    def begin(self, work: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
        """Run a coroutine in the thread of the connection; cancelling the future ends it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Disconnect; workers end their runs for this client."""
        self._closing = True
        while self._thread.is_alive():  # a client that is just connecting may swallow the first
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(lambda: self._main and self._main.cancel())
            self._thread.join(0.5)

    async def call(
        self, function: Callable[..., Any], *arguments: bytes, node: WorkerNode, name: str, limit_s: float
    ) -> Any:
        """Have a worker call a function; return its result.

        `TaskError`: the worker was lost, gave no answer within `limit_s`, or the function raised.
        """
        client = self._client
        if client is None or client.status != "running":
            raise DroppedError(self.trouble or f"there is no connection to the scheduler at {self.scheduler}")
        future: Future[Any] = client.submit(
            function, *arguments, key=f"thetad-{name}-{uuid.uuid4().hex}", workers=[node.address],
            allow_other_workers=False, pure=False, retries=0,
        )  # fmt: skip
        try:
            async with asyncio.timeout(limit_s) as limit:
                while not future.done():
                    await asyncio.sleep(_POLL_S)
                if future.status == "error":
                    error = await future.exception()
                    raise TaskError(f"worker {node.address}: {_cause(error)}")
                return await client.gather(future, direct=False)
        except concurrent.futures.CancelledError as error:
            if getattr(error, "reason", "") == "scheduler-connection-lost":
                self._lost()
                raise DroppedError(self.trouble) from error
            raise DroppedError(f"worker {node.address}: the scheduler dropped the task ({_cause(error)})") from error
        except OSError as error:
            if limit.expired():
                raise TaskError(f"worker {node.address}: gave no answer within {limit_s:g} s") from error
            raise TaskError(f"worker {node.address}: its answer did not arrive ({_cause(error)})") from error
        finally:
            future.release()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        """Keep the connection, whatever ends it."""
        self._main, log = asyncio.current_task(), self._log
        while not self._closing:
            try:
                async with self._connection() as client:
                    await self._watch(client)
            except _REFUSALS as error:
                self._set_trouble(f"the scheduler at {self.scheduler} does not answer ({_cause(error)})")
            except VersionError as error:
                self._set_trouble(str(error))
            except asyncio.CancelledError as error:  # by `close`, or one that Dask lets out
                if self._closing:
                    return
                self._set_trouble(f"the connection to the scheduler at {self.scheduler} failed ({_cause(error)})")
            except Exception as error:  # without this thread no run would ever end
                log.exception("connection_failed")
                self._set_trouble(f"the connection to the scheduler at {self.scheduler} failed ({_cause(error)})")
            await asyncio.sleep(self._delay_s)
            self._delay_s = min(2.0 * self._delay_s, _RETRY_S[1])

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Client]:
        """Connect; at the end everything under way is lost."""
        from distributed import Client

        client = Client(
            self.scheduler, asynchronous=True, timeout=CONNECT_S, set_as_default=False, direct_to_workers=False,
            name="thetad",
        )  # fmt: skip
        try:
            await asyncio.wait_for(client, 2.0 * CONNECT_S)  # its own limit does not hold for all of its steps
            await self._check_scheduler(client)
            self.topic = client.id  # the scheduler forgets a topic with its client
            client.subscribe_topic(self.topic, lambda event: self._on_event(event[1]))
            self._client = client
            yield client
        finally:
            if self._client is not None:
                if client.status == "running":
                    client.unsubscribe_topic(self.topic)
                self._client = None
                self._lost()
            for check in self._checks:
                check.cancel()
            with contextlib.suppress(OSError):  # as after a time-out: the other side does not answer
                await client.close(_CLOSE_S)

    def _lost(self) -> None:
        """Give up everything under way; workers of a new connection are checked again."""
        why = f"the connection to the scheduler at {self.scheduler} was lost"
        if not self._closing:
            self._set_trouble(why)
        self._update_nodes({}, why)

    async def _check_scheduler(self, client: Client) -> None:
        """Refuse a scheduler of another version, which could not read this client's messages."""
        answer = await asyncio.wait_for(_rpc(client).versions(), ANSWER_S)
        there, here = answer["packages"]["distributed"], version("distributed")
        if there != here:
            raise VersionError(
                f"the scheduler at {self.scheduler} has distributed {there}, here is {here}: install the same"
            )

    async def _watch(self, client: Client) -> None:
        """List the workers regularly, until the scheduler does not answer."""
        while client.status == "running":
            answer = await asyncio.wait_for(_rpc(client).identity(n_workers=-1), ANSWER_S)
            self._update_nodes(answer["workers"], "its worker was lost")
            self._judge()
            self._delay_s = _RETRY_S[0]
            await asyncio.sleep(LOOK_S)
        raise ConnectionResetError("connection lost")

    def _update_nodes(self, workers: Mapping[str, Mapping[str, Any]], why: str) -> None:
        seen = [
            WorkerNode(
                address, str(message["local_directory"]), int(message["nthreads"]), message["status"] == "running",
                f"worker {address} is not ready yet",
            )
            for address, message in workers.items()
        ]  # fmt: skip
        with self._lock:
            before, self._nodes = self._nodes, {}
            for node in seen:
                known = before.get(node.address)
                if known is not None and known.directory == node.directory:
                    known.threads, known.serving = node.threads, node.serving
                    node = before.pop(node.address)
                    if node.rested():
                        self._begin_check(node)
                else:
                    self._begin_check(node)
                self._nodes[node.address] = node
        for node in before.values():
            if node.check is not None:
                node.check.cancel()
            self._on_lost(node, why)

    def _begin_check(self, node: WorkerNode) -> None:
        node.rests_until = 0.0
        node.check = self._loop.create_task(self._check(node))
        self._checks.add(node.check)
        node.check.add_done_callback(lambda check: self._checked(node, check))

    def _checked(self, node: WorkerNode, check: asyncio.Task[None]) -> None:
        """Have a worker checked again whose check was interrupted."""
        self._checks.discard(check)
        error = asyncio.CancelledError("cancelled") if check.cancelled() else check.exception()
        if error is not None:
            self.refuse(node, f"worker {node.address}: its check broke off ({_cause(error)})", for_now=True)

    async def _check(self, node: WorkerNode) -> None:
        """Check the code version of a worker."""
        from service.jobs.dask import _worker as remote

        try:
            code = await self.call(remote.describe, node=node, name="describe", limit_s=CHECK_S)
        except TaskError as error:
            self.refuse(node, str(error), for_now=True)
            return
        wrong = remote.difference(self.code, code)
        if wrong:
            self.refuse(node, f"worker {node.address}: {wrong}: install the same thetad there and start it again")
        elif node.check is asyncio.current_task():  # nothing has gone wrong there meanwhile
            node.refused, node.check = "", None
            self._judge()

    def refuse(self, node: WorkerNode, why: str, *, for_now: bool = False) -> None:
        """Send no more runs to a worker, or none for a while; nothing if it is gone."""
        with self._lock:
            if self._nodes.get(node.address) is not node:
                return
            if for_now:
                node.rest(why)
            else:
                node.bar(why)
        self._log.warning("worker refused", worker=node.address, reason=why, for_now=for_now)
        self._judge()

    def _judge(self) -> None:
        """Set the reason why no worker can be used, if so."""
        with self._lock:
            nodes = list(self._nodes.values())
        if any(node.usable() for node in nodes):
            self._set_trouble("")
        elif not nodes:
            self._set_trouble(f"the scheduler at {self.scheduler} has no workers")
        else:
            whys = [node.refused or f"worker {node.address} takes no tasks" for node in nodes]
            more = f"; and {len(whys) - 1} more" if len(whys) > 1 else ""
            self._set_trouble(f"no worker of the scheduler at {self.scheduler} can be used: {whys[0]}{more}")

    def _set_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._on_trouble(trouble)
            self._log.info("cluster", trouble=trouble)


def _rpc(client: Client) -> Any:
    """Return the scheduler's interface."""
    if client.scheduler is None:
        raise ConnectionResetError("connection lost")
    return client.scheduler


def _cause(error: BaseException) -> str:
    """Return one line on an error, or on its first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(f"{type(error).__name__}: {error}".split())
