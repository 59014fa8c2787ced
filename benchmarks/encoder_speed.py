"""Times the encoders' forward and backward pass against stock fairseq layers, side by side in one process.

``python benchmarks/encoder_speed.py`` prints, for each shape (T positions, B sentences), how many times as fast as
stock each architecture's encoder layers run, and beside it what the multiply-adds alone would give.

Rounds are interleaved (stock, then each architecture, then stock again ...), so that what else the machine does falls
on all alike; each figure is the median over rounds of the ratio within the round. Dropout 0.1, fp32, no padding.
"""

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.nn as nn
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fairseq.models import ARCH_CONFIG_REGISTRY  # noqa: E402
from fairseq.models.transformer import TransformerConfig  # noqa: E402
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase  # noqa: E402

import informer_fairseq  # noqa: E402, F401  (registers the architectures)
from benchmarks.side_by_side import interleave, multiply_adds, ratio  # noqa: E402
from informer_fairseq.encoder_layer import EfficientEncoderLayer  # noqa: E402

STOCK = "transformer"
ARCHS = ("linformer_mt", "conv_linformer_mt", "informer_mt", "linformer_informer_mt")
SHAPES = ((20, 100), (50, 40), (200, 10))
# What the project promises at these shapes (Table 3's sizes, two CPU threads).
FLOORS = {
    "linformer_mt": (1.05, 1.10, 1.20),
    "conv_linformer_mt": (0.75, 0.75, 0.75),
    "informer_mt": (1.3, 1.4, 1.5),
}


def build_layers(arch: str, layers: int, fixed_length: Optional[int] = None, **flags: Any) -> nn.ModuleList:
    """A stack of encoder layers of ``arch`` at its own sizes, as its encoder would build them."""
    args = argparse.Namespace(dropout=0.1, **flags)
    if fixed_length is not None and arch != STOCK:
        args.encoder_fixed_length = fixed_length
        args.encoder_reduced_length = fixed_length // 25
    ARCH_CONFIG_REGISTRY[arch](args)
    cfg = TransformerConfig.from_namespace(args)
    if arch == STOCK:
        return nn.ModuleList(TransformerEncoderLayerBase(cfg) for _ in range(layers))
    shared: Dict[str, nn.Module] = {}
    return nn.ModuleList(EfficientEncoderLayer(cfg, shared) for _ in range(layers))


def training_pass(layers: nn.ModuleList, x: Tensor, gradient: Tensor) -> None:
    """Forward and backward through the stack, gradients of weights and input included.

    The gradient is given: that of a sum behind a layer norm is zero but for rounding.
    """
    layers.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    out = x
    for layer in layers:
        out = layer(out, encoder_padding_mask=None)
    out.backward(gradient)


def forward(layers: nn.ModuleList, x: Tensor) -> None:
    """Forward through the stack."""
    for layer in layers:
        x = layer(x, encoder_padding_mask=None)


def measure(shape: Tuple[int, int], archs: Sequence[str], rounds: int, layers: int) -> List[Dict[str, Any]]:
    """One row an architecture: speed-up over stock (median and range over rounds) and multiply-adds."""
    length, batch = shape
    fixed_length = None if length <= 200 else length
    torch.manual_seed(1)
    stacks = {arch: build_layers(arch, layers, fixed_length).train() for arch in (STOCK, *archs)}
    x, gradient = torch.randn(length, batch, 512), torch.randn(length, batch, 512)
    runs = {arch: lambda stack=stack: training_pass(stack, x, gradient) for arch, stack in stacks.items()}
    times = interleave(runs, rounds)
    macs = {
        arch: multiply_adds(lambda stack=stack: forward(stack, x)) / (length * batch) for arch, stack in stacks.items()
    }
    rows = []
    for arch in archs:
        median, low, high = ratio(times[STOCK], times[arch])
        rows.append(
            {
                "arch": arch,
                "length": length,
                "batch": batch,
                "speedup": median,
                "speedup_range": [low, high],
                "milliseconds": 1000 * statistics.median(times[arch]),
                "stock_milliseconds": 1000 * statistics.median(times[STOCK]),
                "multiply_adds_per_token": macs[arch],
                "ideal_speedup": macs[STOCK] / macs[arch],
            }
        )
    return rows


def floor_of(row: Dict[str, Any]) -> Optional[float]:
    """The promised speed-up for a row, if there is one."""
    shape = (row["length"], row["batch"])
    if shape not in SHAPES or row["arch"] not in FLOORS:
        return None
    return FLOORS[row["arch"]][SHAPES.index(shape)]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """The command-line tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--archs", nargs="+", default=list(ARCHS), choices=ARCHS)
    parser.add_argument("--shapes", nargs="+", default=[f"{t}x{b}" for t, b in SHAPES], metavar="TxB")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads, {platform.processor() or platform.machine()}, ", end="")
    print(f"{args.layers} layers, forward and backward, fp32, {args.rounds} rounds")
    print("| (T, B) | arch | ms | stock ms | times as fast | range | by multiply-adds | M mult-adds/token | floor |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for shape in args.shapes:
        length, batch = (int(number) for number in shape.split("x"))
        for row in measure((length, batch), args.archs, args.rounds, args.layers):
            rows.append(row)
            floor = floor_of(row)
            verdict = "" if floor is None else f"{floor:.2f} {'held' if row['speedup'] >= floor else 'MISSED'}"
            low, high = row["speedup_range"]
            print(
                f"| ({length}, {batch}) | {row['arch']} | {row['milliseconds']:.0f} | "
                f"{row['stock_milliseconds']:.0f} | "
                f"{row['speedup']:.2f} | {low:.2f}-{high:.2f} | {row['ideal_speedup']:.2f} | "
                f"{row['multiply_adds_per_token'] / 1e6:.2f} | {verdict} |",
                flush=True,
            )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
