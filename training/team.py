"""The processes that train one network together, as started by `torchrun` or Ray Train; usually a single one."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

Result = TypeVar("Result")


@dataclass(frozen=True)
class Team:
    """This process's place among those that train together.

    Attributes:
        rank: Number of this process, from 0; the first evaluates and writes.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process evaluates and writes."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """Return the module with its gradients averaged over the team."""
        return module if self.size == 1 else DistributedDataParallel(module)

    def alone(self, network: nn.Module) -> AbstractContextManager[object]:
        """Return a block in which gradients of the wrapped network are added up in each process, not yet averaged."""
        return network.no_sync() if isinstance(network, DistributedDataParallel) else nullcontext()

    def share(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch of row numbers (n,); empty if there are fewer rows than processes."""
        return batch if self.size == 1 else batch.tensor_split(self.size)[self.rank]

    def total(self, numbers: Tensor) -> Tensor:
        """Return the sum of these numbers over the team."""
        if self.size > 1:
            distributed.all_reduce(numbers)
        return numbers

    def from_leader(self, make: Callable[[], Result]) -> Result:
        """Make a result in the first process and return it in all of them."""
        if self.size == 1:
            return make()
        box: list[Any] = [make() if self.leads else None]
        distributed.broadcast_object_list(box)
        result: Result = box[0]
        return result

    @contextmanager
    def merging(self, counters: Iterable[Tensor]) -> Iterator[None]:
        """Add up the changes that each process made to shared counters during the block."""
        if self.size == 1:
            yield
            return
        kept = [(counter, counter.clone()) for counter in counters]
        yield
        for counter, before in kept:
            counter.copy_(before + self.total(counter - before))


ALONE = Team()


@contextmanager
def team(device: str) -> Iterator[Team]:
    """Join the team that `torchrun` announces or Ray Train has formed, for the length of a block, or work alone.

    Args:
        device: `cpu` (gloo) or `cuda` (NCCL).
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    if distributed.is_initialized():  # by Ray Train, which also chose the device and ends the group
        yield Team(distributed.get_rank(), size)
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # The defaults of its functions keep the group that exists when DistributedDataParallel first imports it.
    import_module("torch.distributed.nn.functional")
    distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield Team(distributed.get_rank(), size)
    finally:
        distributed.destroy_process_group()
        # The group's threads end with its last reference. To free a tensor that Python made, they need the GIL, and a
        # thread that asks for it while Python ends aborts the process (before 3.14).
        gc.collect()
