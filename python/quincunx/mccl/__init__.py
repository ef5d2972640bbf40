"""mccl: collectives between processes on CPUs, as a backend of torch.distributed.

    import quincunx.mccl
    torch.distributed.init_process_group("mccl")                    # or "cpu:mccl,cuda:nccl"

The call returns at once: the group connects in a background thread, and its first collective waits for it.
"""

import atexit

import torch.distributed as dist

from quincunx.mccl._extension import load
from quincunx.mccl._groups import Options, Progress, create, flight_recorder, progress, ready, statistics, wait_ready
from quincunx.mccl._rendezvous import init_from_environment, open_store, rendezvous_handler
from quincunx.mccl._torch_functions import extend_torch_functions, restore_torch_functions

CollectiveTimeoutError = load().CollectiveTimeoutError

__all__ = [
    "CollectiveTimeoutError",
    "Options",
    "Progress",
    "extend_torch_functions",
    "flight_recorder",
    "init_from_environment",
    "open_store",
    "progress",
    "ready",
    "restore_torch_functions",
    "statistics",
    "wait_ready",
]

dist.Backend.register_backend("mccl", create, extended_api=True, devices=["cpu"])
dist.register_rendezvous_handler("mccl", rendezvous_handler)
extend_torch_functions()
# Groups that the user has not destroyed have threads, which must end before the interpreter does.
atexit.register(load().shutdown_all)
