"""Encoder layers against stock's and against other low-rank implementations: speed, and bytes kept for backward."""

import gc
from typing import Any, Dict, List, Sequence, Tuple

import torch
import torch.nn as nn

from benchmarks.encoder_speed import ARCHS, STOCK, build_layers, forward, training_pass
from benchmarks.peers import build_peers
from benchmarks.rows import Row, counted_row, timed_rows
from benchmarks.side_by_side import interleave, multiply_adds, saved_bytes

ORGANIZED = ("informer_mt", "linformer_informer_mt")  # those whose feed-forward is information organization
GROUPED = "informer_mt, groups of 200"
# What the project promises, at Table 3's sizes: times as fast as stock, training, by (T, B).
SPEED: Dict[Tuple[int, int], Dict[str, float]] = {
    (20, 100): {"linformer_mt": 1.05, "conv_linformer_mt": 0.75, "informer_mt": 1.51, "linformer_informer_mt": 2.2},
    (50, 40): {"linformer_mt": 1.10, "conv_linformer_mt": 0.78, "informer_mt": 1.62, "linformer_informer_mt": 2.5},
    (200, 10): {"linformer_mt": 1.20, "conv_linformer_mt": 0.82, "informer_mt": 1.69, "linformer_informer_mt": 2.8},
    (1000, 2): {"linformer_mt": 1.58, "conv_linformer_mt": 0.96},
    (4000, 1): {"linformer_mt": 2.91, "conv_linformer_mt": 2.03, GROUPED: 1.8},
}
# Bytes kept for the backward pass, as a share of stock's.
MEMORY = {"linformer_mt": 1.0, "conv_linformer_mt": 1.05, "informer_mt": 0.70, "linformer_informer_mt": 0.55}
MEMORY_SHAPES = ((50, 40), (200, 10))


def measure(
    shapes: Sequence[Tuple[int, int]], rounds: int, layers: int, device: torch.device, dtype: torch.dtype
) -> List[Row]:
    """Rows of speed and of memory; n is 200, or T where that is more, and r = n / 25."""
    rows: List[Row] = []
    for length, batch in shapes:
        torch.manual_seed(1)
        n = max(200, length)
        depth = layers if length <= 200 else min(layers, 2)  # a layer's share is the same; the long ones take long
        stacks: Dict[str, nn.ModuleList] = {STOCK: build_layers(STOCK, depth)}
        for arch in ARCHS:
            if n > 200 and arch in ORGANIZED:
                # As published, information organization costs 2 n C a token: with groups, what it does at n = 200.
                stacks[f"{arch}, groups of 200"] = build_layers(arch, depth, n, encoder_organization_groups=n // 200)
            else:
                stacks[arch] = build_layers(arch, depth, n)
        stacks.update(build_peers(depth, n, n // 25))
        for stack in stacks.values():
            stack.to(device, dtype).train()
        x, gradient = (torch.randn(length, batch, 512, device=device, dtype=dtype) for _ in range(2))
        setting = f"T {length}, B {batch}, n {n}"
        speed, share = _measure_one(stacks, x, gradient, rounds, setting, SPEED.get((length, batch), {}))
        rows += speed
        limits = MEMORY if (length, batch) in MEMORY_SHAPES else {}
        rows += [
            counted_row("Bytes kept for the backward pass, of stock's", setting, name, value, limits.get(name))
            for name, value in share.items()
        ]
        del stacks
        gc.collect()  # before the next shape's layers are built
    return rows


def _measure_one(
    stacks: Dict[str, nn.ModuleList], x: Any, gradient: Any, rounds: int, setting: str, limits: Dict[str, float]
) -> Tuple[List[Row], Dict[str, float]]:
    """Speed of one shape, and the share of stock's saved bytes by name."""
    runs = {name: lambda stack=stack: training_pass(stack, x, gradient) for name, stack in stacks.items()}
    times = interleave(runs, rounds)
    macs = {name: multiply_adds(lambda stack=stack: forward(stack, x)) for name, stack in stacks.items()}
    ideals = {name: macs[STOCK] / value for name, value in macs.items()}
    kept = {name: saved_bytes(lambda stack=stack: _graph(stack, x), stack) for name, stack in stacks.items()}
    speed = timed_rows("Encoder layers, training: times as fast as stock", setting, times, STOCK, limits, ideals)
    return speed, {name: value / kept[STOCK] for name, value in kept.items()}


def _graph(stack: nn.ModuleList, x: Any) -> Any:
    out = x.detach().requires_grad_()
    for layer in stack:
        out = layer(out, encoder_padding_mask=None)
    return out
