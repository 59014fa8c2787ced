"""Timing of alternatives in one process: rounds are interleaved, so that other load falls on all alike."""

import statistics
import time
from typing import Callable, Dict, List, Tuple

import torch
import torch.nn as nn
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def interleave(runs: Dict[str, Callable[[], object]], rounds: int) -> Dict[str, List[float]]:
    """Seconds of each run in each round, after one round to warm up; every round starts with another run."""
    names = list(runs)
    times: Dict[str, List[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            synchronize()
            start = time.perf_counter()
            runs[name]()
            synchronize()
            if number > 0:
                times[name].append(time.perf_counter() - start)
    return times


def synchronize() -> None:
    """Waits for the GPU, if one is in use."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def ratio(numerators: List[float], denominators: List[float]) -> Tuple[float, float, float]:
    """Median, lowest and highest ratio over the rounds, each taken within its round."""
    ratios = [above / below for above, below in zip(numerators, denominators)]
    return statistics.median(ratios), min(ratios), max(ratios)


def multiply_adds(run: Callable[[], object]) -> float:
    """Multiply-adds of one forward run, counted by torch.

    Attention runs as plain products here: torch does not count its fused CPU kernel.
    """
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        run()
    return counter.get_total_flops() / 2


def saved_bytes(run: Callable[[], object], module: nn.Module) -> int:
    """Bytes that autograd keeps for the backward pass of what ``run`` computes, the module's parameters apart.

    Storages are counted once each. The number is the same on every run and machine with the same kernels.
    """
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: Dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(count, lambda tensor: tensor):
        graph = run()  # held until all is counted: a freed address may come again
        total = sum(kept.values())
        del graph
    return total
