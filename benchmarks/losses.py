"""Output projection and label-smoothed loss, forward and backward: fairseq's against the chunked one."""

from functools import partial
from typing import Callable, Dict, List, Sequence, Tuple

import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.rows import Row, counted_row, timed_rows
from benchmarks.side_by_side import interleave
from informer_fairseq.criterions.chunked_loss import chunked_smoothed_loss

SHAPES = ((3800, 128, 9696), (2000, 512, 7709))
SPEED, MEMORY = {(3800, 128, 9696): 1.5}, {(3800, 128, 9696): 0.15}
CHUNK_ROWS = 512  # the criterion's default


def fairseqs(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """As ``label_smoothed_cross_entropy`` does it; returns the loss."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    log_probabilities = F.log_softmax(F.linear(x, weight), dim=-1, dtype=dtype)
    loss, _ = label_smoothed_nll_loss(log_probabilities, target.unsqueeze(1), 0.1, ignore_index=1)
    loss.backward()
    return loss.detach()


def chunked(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """As ``chunked_label_smoothed_cross_entropy`` does it; returns the loss."""
    loss = chunked_smoothed_loss(x, weight, None, target, epsilon=0.1, rows=CHUNK_ROWS)[0]
    loss.backward()
    return loss.detach()


def measure(shapes: Sequence[Tuple[int, int, int]], rounds: int, device: torch.device) -> List[Row]:
    """Rows of speed and of the memory that is held at most."""
    rows: List[Row] = []
    for count, width, types in shapes:
        torch.manual_seed(1)
        x = torch.randn(count, width, device=device, requires_grad=True)
        weight = (torch.randn(types, width, device=device) * width**-0.5).requires_grad_()
        target = torch.randint(4, types, (count,), device=device)
        given = (x, weight, target)
        runs: Dict[str, Callable[[], object]] = {
            "fairseq's": partial(fairseqs, *given),
            "chunked": partial(chunked, *given),
        }
        setting, shape = f"{count:,} rows, {width} wide, {types:,} types", (count, width, types)
        limits = {"chunked": SPEED[shape]} if shape in SPEED else {}
        times = interleave(runs, rounds)
        rows += timed_rows("Projection and loss: times as fast as fairseq's", setting, times, "fairseq's", limits)
        peaks = {name: peak_of_allocations(run, device) for name, run in runs.items()}
        share = peaks["chunked"] / peaks["fairseq's"]
        job = "Projection and loss: memory, of fairseq's"
        rows.append(counted_row(job, setting, "chunked", share, MEMORY.get(shape)))
    return rows


def peak_of_allocations(run: Callable[[], object], device: torch.device) -> int:
    """The most bytes that torch's allocator hands out at a time while ``run`` runs."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=False) as profiler:
        run()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
