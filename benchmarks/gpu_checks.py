"""Correctness on a GPU, then speed and memory against stock at Table 3's sizes: gpu.sh's short mode.

    python benchmarks/gpu_checks.py --json checks.json               # on a GPU, within 3 minutes
    python benchmarks/gpu_checks.py --device cpu --small             # that all of it runs; the same limits

Every check prints a figure, its limit, and whether it held; a check that raises has failed, and the others still run.
The exit status is 1 if any failed. Figures of speed and memory have no limits here: those of benchmarks/run.py are
promised on two CPU threads. What does not fit into --minutes is left out and named; checks never are.
"""

import argparse
import copy
import os
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

# cuBLAS reads it once, when it starts: without it, deterministic algorithms refuse every matrix product.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss  # noqa: E402
from fairseq.sequence_generator import SequenceGenerator  # noqa: E402

import informer_fairseq  # noqa: E402, F401  (registers the architectures)
from benchmarks import encoders, losses, training_steps  # noqa: E402
from benchmarks.checks import Check, checked  # noqa: E402
from benchmarks.decoding import build_model, dictionary  # noqa: E402
from benchmarks.machine import environment  # noqa: E402
from benchmarks.rows import Row, markdown  # noqa: E402
from informer_fairseq.criterions.chunked_label_smoothed_cross_entropy import (  # noqa: E402
    ChunkedLabelSmoothedCrossEntropyCriterion,
)
from informer_fairseq.tools.files import write_file, write_json  # noqa: E402

ARCHS = (training_steps.STOCK, *training_steps.ARCHS)
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
# Largest relative differences (Frobenius norms) of logits and of gradients from float64: several times what a CPU gives
# at these sizes. A few of the windows that pooling chooses from are equal but for rounding, the more the coarser
# it is, and a gradient then goes to the other one of them.
OUTPUT_LIMITS = {torch.float32: 5e-5, torch.float16: 1e-2, torch.bfloat16: 4e-2}
GRADIENT_LIMITS = {torch.float32: 5e-3, torch.float16: 0.2, torch.bfloat16: 0.4}
PADDING_LIMITS = {torch.float32: 5e-5, torch.float16: 1e-2, torch.bfloat16: 4e-2}
LOSS_LIMITS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SCORE_LIMIT = 1e-4


class Size(NamedTuple):
    """Of models and batches: tiny or base, types of the one dictionary, lengths of the sentences."""

    tiny: bool
    types: int
    lengths: Tuple[int, ...]


BASE = Size(False, 1000, (60, 47, 31, 20, 9, 2, 1))
SMALL = Size(True, 60, (12, 7, 3, 1))


class Batch(NamedTuple):
    """Sources padded on the left, as fairseq pads them, and targets padded on the right; B x T each."""

    source: Tensor
    lengths: Tensor
    previous: Tensor
    target: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        return Batch(*(tensor.to(device) for tensor in self))


def build_batch(size: Size, words: Any) -> Batch:
    """Random sentences, ``</s>`` last."""
    generator = torch.Generator().manual_seed(2)
    shape = (len(size.lengths), max(size.lengths))
    source, target = (torch.randint(4, len(words), shape, generator=generator) for _ in range(2))
    lengths = torch.tensor(size.lengths)
    columns = torch.arange(shape[1])
    source[:, -1] = words.eos()
    source[columns < shape[1] - lengths.unsqueeze(1)] = words.pad()
    target[columns == lengths.unsqueeze(1) - 1] = words.eos()
    target[columns >= lengths.unsqueeze(1)] = words.pad()
    previous = torch.cat([torch.full((shape[0], 1), words.eos()), target[:, :-1]], dim=1)
    previous[columns >= lengths.unsqueeze(1)] = words.pad()
    return Batch(source, lengths, previous, target)


def build(arch: str, size: Size, **flags: Any) -> nn.Module:
    """A model in eval mode whose parameters have left their start (biases zero, norms one).

    Its weights can be written in every precision: what is compared is the arithmetic, not the rounding of weights.
    """
    torch.manual_seed(1)
    model = build_model(arch, dictionary(size.types), size.tiny, **flags)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
            parameter.copy_(parameter.bfloat16().half().float())
    return model


def logits_and_gradients(model: nn.Module, batch: Batch) -> Tuple[Tensor, Dict[str, Tensor]]:
    """Logits at real target positions (N x V), and every parameter's gradient of fairseq's summed loss, in float64.

    In fp16 the loss is scaled as fairseq scales it at its start: small gradients would be lost otherwise.
    """
    scale = 128 if next(model.parameters()).dtype == torch.float16 else 1
    logits = model(batch.source, batch.lengths, batch.previous)[0]
    log_probabilities = F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    target = batch.target.unsqueeze(2)
    loss, _ = label_smoothed_nll_loss(log_probabilities, target, 0.1, ignore_index=1)
    (loss * scale).backward()
    gradients = {
        name: torch.zeros(()) if parameter.grad is None else parameter.grad.double().cpu() / scale
        for name, parameter in model.named_parameters()
    }
    return logits[batch.target.ne(1)].detach().double().cpu(), gradients


def relative(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference, in norms of what is expected; not a number where one of them is not."""
    return float((found - expected).norm() / expected.norm())


def worst_gradient(found: Dict[str, Tensor], expected: Dict[str, Tensor]) -> float:
    """The largest relative difference of a parameter's gradient.

    Some are zero but for rounding (the bias of the keys moves all scores alike), so that a norm below that of the
    average parameter counts as that.
    """
    usual = torch.stack([gradient.norm() for gradient in expected.values()]).square().mean().sqrt()
    differences = [(found[name] - expected[name]).norm() / max(expected[name].norm(), usual) for name in expected]
    return float(torch.stack(differences).amax())  # amax hands a NaN on


def precision_checks(arch: str, size: Size, device: torch.device) -> List[Check]:
    """Logits and gradients in every precision against float64 on the CPU."""
    model, batch = build(arch, size), build_batch(size, dictionary(size.types))
    expected, by_parameters = logits_and_gradients(copy.deepcopy(model).double(), batch)
    checks = []
    for dtype, name in NAMES.items():
        found: List[Any] = []

        def outputs(dtype: torch.dtype = dtype, found: List[Any] = found) -> float:
            found.extend(logits_and_gradients(copy.deepcopy(model).to(device, dtype), batch.to(device)))
            return relative(found[0], expected)

        checks.append(checked(f"{arch}, {name}: logits against float64", OUTPUT_LIMITS[dtype], outputs))
        label = f"{arch}, {name}: gradients against float64, the worst parameter"
        checks.append(
            checked(label, GRADIENT_LIMITS[dtype], lambda found=found: worst_gradient(found[1], by_parameters))
        )
    return checks


def two_updates(arch: str, size: Size, device: torch.device, dtype: torch.dtype) -> List[Tensor]:
    """Losses and last gradients of two updates with every dropout on and the chunked loss."""
    words = dictionary(size.types)
    model = build(arch, size, attention_dropout=0.1, activation_dropout=0.1).to(device, dtype).train()
    criterion = ChunkedLabelSmoothedCrossEntropyCriterion(SimpleNamespace(target_dictionary=words), False, 0.1)
    batch = build_batch(size, words).to(device)
    inputs = {"src_tokens": batch.source, "src_lengths": batch.lengths, "prev_output_tokens": batch.previous}
    sample = {"net_input": inputs, "target": batch.target, "ntokens": sum(size.lengths)}
    made = []
    torch.manual_seed(7)  # of the CPU and of every GPU
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        loss = criterion(model, sample)[0]
        loss.backward()
        made.append(loss.detach())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=1e-4)
    return made + [parameter.grad for parameter in model.parameters()]


def differing(run: Callable[[], List[Tensor]]) -> float:
    """How many numbers differ between two runs under deterministic algorithms; a NaN differs from itself."""
    torch.use_deterministic_algorithms(True)
    try:
        first, second = run(), run()
    finally:
        torch.use_deterministic_algorithms(False)
    return sum(int(one.ne(other).sum()) for one, other in zip(first, second))


@torch.no_grad()
def padding_difference(arch: str, size: Size, device: torch.device, dtype: torch.dtype) -> float:
    """The largest relative difference between a sentence encoded alone and in a padded batch."""
    encoder = build(arch, size).to(device, dtype).encoder
    batch = build_batch(size, dictionary(size.types)).to(device)
    together = encoder(batch.source, batch.lengths)["encoder_out"][0].transpose(0, 1)  # B x T x C
    found = []
    for row, length in enumerate(size.lengths):
        alone = encoder(batch.source[row : row + 1, -length:], batch.lengths[row : row + 1])["encoder_out"][0]
        found.append(torch.tensor(relative(together[row, -length:].double(), alone[:, 0].double())))
    return float(torch.stack(found).amax())


@torch.no_grad()
def score_difference(arch: str, size: Size, device: torch.device) -> float:
    """The largest difference of a beam search's scores from those of its hypotheses as decoder input (fp32)."""
    words = dictionary(size.types)
    model, batch = build(arch, size).to(device), build_batch(size, words).to(device)
    generator = SequenceGenerator([model], words, beam_size=3, max_len_a=0, max_len_b=12, min_len=4)
    inputs = {"src_tokens": batch.source, "src_lengths": batch.lengths}
    found = []
    for row, hypotheses in enumerate(generator.generate([model], {"net_input": inputs})):
        source, lengths = batch.source[row : row + 1, -size.lengths[row] :], batch.lengths[row : row + 1]
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"].to(device)
            previous = torch.cat([tokens.new_tensor([words.eos()]), tokens[:-1]]).unsqueeze(0)
            scores = model.get_normalized_probs(model(source, lengths, previous), log_probs=True)[0]
            expected = scores.gather(1, tokens.unsqueeze(1)).squeeze(1)
            found.append((hypothesis["positional_scores"].to(device) - expected).abs().amax())
    return float(torch.stack(found).amax())


def loss_difference(shape: Tuple[int, int, int], device: torch.device, dtype: torch.dtype) -> float:
    """The largest relative difference of the chunked loss and its gradients from fairseq's, taken in float64."""
    rows, width, types = shape
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(rows, width, generator=generator).to(device, dtype)
    weight = (torch.randn(types, width, generator=generator) * width**-0.5).to(device, dtype)
    target = torch.randint(4, types, (rows,), generator=generator).to(device)
    results = []
    for run, kind in ((losses.chunked, dtype), (losses.fairseqs, torch.float64)):
        given = [tensor.detach().to(kind).requires_grad_() for tensor in (features, weight)]
        loss = run(*given, target)
        results.append([loss.double(), *(tensor.grad.double() for tensor in given)])  # type: ignore[union-attr]
    return float(torch.tensor([relative(found, expected) for found, expected in zip(*results)]).amax())


def correctness(archs: Sequence[str], size: Size, device: torch.device) -> List[Check]:
    """All checks; each is printed when it is made."""
    checks: List[Check] = []
    for arch in archs:
        checks += precision_checks(arch, size, device)
        for dtype in (torch.float32, torch.bfloat16):
            run = partial(two_updates, arch, size, device, dtype)
            name = f"{arch}, {NAMES[dtype]}: numbers that differ between two runs, deterministic algorithms"
            checks.append(checked(name, 0, partial(differing, run)))
        for dtype in NAMES:
            name = f"{arch}, {NAMES[dtype]}: encoding in a padded batch against alone"
            checks.append(checked(name, PADDING_LIMITS[dtype], partial(padding_difference, arch, size, device, dtype)))
        name = f"{arch}, fp32: scores of a beam search against teacher forcing"
        checks.append(checked(name, SCORE_LIMIT, partial(score_difference, arch, size, device)))
    shape = (100, 16, 500) if size.tiny else losses.SHAPES[-1]
    for dtype, name in NAMES.items():
        label = f"chunked loss, {name}: loss and gradients against fairseq's in float64"
        checks.append(checked(label, LOSS_LIMITS[dtype], partial(loss_difference, shape, device, dtype)))
    return checks


def measurements(small: bool, rounds: int, device: torch.device) -> Dict[str, Callable[[], List[Row]]]:
    """What is timed and counted, in the order of its worth, by name."""
    cpu, half = device.type == "cpu", ["--bf16"]
    shapes: Tuple[Tuple[int, int], ...] = ((10, 4),) if small else ((20, 100), (50, 40), (200, 10))
    large: Tuple[Tuple[int, int], ...] = ((12, 4),) if small else ((50, 320),)
    depth = 1 if small else 6
    table3, big = ("small", "small") if small else ("table3", "table3-large")
    archs = training_steps.ARCHS[:1] if small else training_steps.ARCHS
    return {
        "encoder bf16, large batch": lambda: encoders.measure(large, rounds, depth, device, torch.bfloat16),
        "step bf16, large batch": lambda: training_steps.measure(big, rounds, archs, cpu, half),
        "peak bf16, large batch": lambda: training_steps.measure_peak(big, archs, cpu, half),
        "encoder fp32": lambda: encoders.measure(shapes, rounds, depth, device, torch.float32),
        "step fp32": lambda: training_steps.measure(table3, rounds, archs, cpu),
        "encoder bf16": lambda: encoders.measure(shapes, rounds, depth, device, torch.bfloat16),
        "step bf16": lambda: training_steps.measure(table3, rounds, archs, cpu, half),
    }


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command-line tool; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--small", action="store_true", help="small shapes: to see that all of it runs")
    parser.add_argument("--archs", nargs="+", default=list(ARCHS), choices=ARCHS, metavar="ARCH")
    parser.add_argument("--rounds", type=int, default=6, help="of each timing (6)")
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="no measurement starts in the last sixth of them (3)"
    )
    parser.add_argument("--started", type=float, help="when they began, in seconds since 1970 (now)")
    parser.add_argument("--no-speed", action="store_true", help="checks alone")
    parser.add_argument("--json", metavar="FILE", help="write checks and figures here")
    parser.add_argument("--text", metavar="FILE", help="write the report here, as printed")
    args = parser.parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device; use --device cpu --small")
    use_cuda = args.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    started = time.time() if args.started is None else args.started
    head = environment(device, torch.get_num_threads())
    print(head, flush=True)
    checks = correctness(args.archs, SMALL if args.small else BASE, device)
    failed = sum(not check.held for check in checks)
    summary = f"{len(checks) - failed} of {len(checks)} checks held, {failed} failed; {time.time() - started:.0f} s"
    print(summary, flush=True)
    rows: List[Row] = []
    left_out: List[str] = []
    tables = []
    for name, measure in {} if args.no_speed else measurements(args.small, args.rounds, device).items():
        if time.time() - started > args.minutes * 60 * 5 / 6:
            left_out.append(name)
            continue
        made = [replace(row, limit=None) for row in measure()]
        rows += made
        tables.append(f"{name}\n\n{markdown(made)}")
        print("\n" + tables[-1], flush=True)
    if left_out:
        tables.append(f"Left out, since the {args.minutes:g} minutes were nearly over: {'; '.join(left_out)}")
        print(tables[-1])
    if args.text:
        lines = "\n".join(check.line() for check in checks)
        write_file(args.text, "\n\n".join([head, lines, summary, *tables]) + "\n")
    write_json(
        args.json,
        {
            "environment": head,
            "checks": [check.values() for check in checks],
            "rows": [asdict(row) for row in rows],
            "left_out": left_out,
            "seconds": round(time.time() - started, 1),
        },
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
