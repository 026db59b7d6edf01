"""The processes that train one network together, as `torchrun` starts them; most often one alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

Result = TypeVar("Result")


@dataclass(frozen=True)
class Team:
    """Who this process is among those that train together.

    Attributes:
        rank: Number of this process, from 0; the first one evaluates and writes.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that evaluates and writes."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module, with its gradients averaged over the team."""
        return module if self.size == 1 else DistributedDataParallel(module)

    def share(self, batch: Tensor) -> Tensor:
        """This process's part of a batch of row numbers (n,); empty where there are fewer rows than processes."""
        return batch if self.size == 1 else batch.tensor_split(self.size)[self.rank]

    def total(self, numbers: Tensor) -> Tensor:
        """The sum of these numbers over the team."""
        if self.size > 1:
            distributed.all_reduce(numbers)
        return numbers

    def from_leader(self, make: Callable[[], Result]) -> Result:
        """What the first process makes, for all of them."""
        if self.size == 1:
            return make()
        box = [make() if self.leads else None]
        distributed.broadcast_object_list(box)
        result: Result = box[0]  # type: ignore[assignment]
        return result

    @contextmanager
    def merging(self, counters: Iterable[Tensor]) -> Iterator[None]:
        """Add up at the end of the block what each process changed in counters that all of them keep."""
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
    """The team that `torchrun` announces in the environment, joined for the length of a block; or this process alone.

    Args:
        device: `cpu` (processes speak through gloo) or `cuda` (NCCL).
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield Team(distributed.get_rank(), size)
    finally:
        distributed.destroy_process_group()
