"""Real-time settings of a process: scheduling policy, processors, locked memory, processors kept awake.

`[arm.realtime]` requests each of them, and the system may refuse. A process works on without what it was refused and
logs that once: cycles are late more often then, but not wrong.
"""

import contextlib
import ctypes
import gc
import os
from collections.abc import Sequence
from pathlib import Path

from service.config.arm_tables import RealtimeConfig

_MCL_CURRENT, _MCL_FUTURE = 1, 2
#: Holds the longest wake-up time of a processor [us] as long as the file is open:
#: https://docs.kernel.org/power/pm_qos_interface.html
_LATENCY = Path("/dev/cpu_dma_latency")
_held: list[int] = []  # open until the process ends


def apply_realtime(config: RealtimeConfig) -> list[str]:
    """Apply `config` to this process and disable garbage collection; return what the system refused, a line each.

    Call it last before the loop, when all long-lived objects exist.
    """
    refused: list[str] = []
    if config.processors is not None:
        try:
            os.sched_setaffinity(0, config.processors)
        except (OSError, ValueError) as error:
            available = ", ".join(str(number) for number in sorted(os.sched_getaffinity(0)))
            refused.append(f"processors {_list(config.processors)}: {_reason(error)}; this process may use {available}")
    if config.lock_memory and (error_number := _lock_memory()):
        refused.append(
            f"lock_memory: {os.strerror(error_number)}; run as root, or give it CAP_IPC_LOCK or a memlock limit"
        )
    if config.priority:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(config.priority))
            for thread in _socket_threads():  # or a request to stop waits for a processor there
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(max(config.priority - 1, 1)))
        except OSError as error:
            refused.append(
                f"priority {config.priority}: {_reason(error)}; run as root, or give the process CAP_SYS_NICE or an "
                "rtprio limit"
            )
    if config.stay_awake and not _held:
        try:
            _held.append(_keep_awake())
        except OSError as error:
            refused.append(
                f"stay_awake: {_LATENCY}: {_reason(error)}; run as root, let the process write there, or keep "
                "processors awake by the kernel's command line (processor.max_cstate=1)"
            )
    # What is alive now stays alive, and frames hold no cycles: a collection would only stop the loop.
    gc.collect()
    gc.freeze()
    gc.disable()
    return refused


def _socket_threads() -> list[int]:
    """Return the threads by which sockets of ZeroMQ receive and send; it names them so."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            if (task / "comm").read_text("utf-8").startswith("ZMQbg/IO"):
                found.append(int(task.name))
    return found


def _lock_memory() -> int:
    """Lock all pages, present and future; return 0 or the error number."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE) == 0:
        return 0
    return ctypes.get_errno()


def _keep_awake() -> int:
    """Keep processors out of sleep states; return the file that has to stay open."""
    file = os.open(_LATENCY, os.O_WRONLY)
    try:
        os.write(file, ctypes.c_int32(0))  # 0 us: an idle processor keeps polling for work
    except OSError:
        os.close(file)
        raise
    return file


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
