"""Times ni_transformer's training step and greedy decoding against stock transformer, side by side in one process.

``python benchmarks/ni_speed.py`` prints how many times as long as stock each system takes, and beside it what
the multiply-adds alone would give. A training step is forward, label-smoothed loss, backward and Adam, dropout 0.1;
greedy decoding is fairseq's own generator with a beam of one, made to write sentences of one length, so that all
systems take the same number of steps. Base size, one shared vocabulary of 32,000 types.
"""

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.nn as nn
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss  # noqa: E402
from fairseq.data import Dictionary  # noqa: E402
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY  # noqa: E402
from fairseq.sequence_generator import SequenceGenerator  # noqa: E402

import informer_fairseq  # noqa: E402, F401  (registers the architectures)
from benchmarks.rows import Row  # noqa: E402
from benchmarks.side_by_side import interleave, multiply_adds, ratio  # noqa: E402

STOCK = "transformer"
FLAGS = Path(__file__).resolve().parents[1] / "examples" / "neuron_interaction" / "flags"
# What the project promises for row 8: times as long as stock.
LIMITS = {"training step": 1.20, "greedy decoding": 1.15}


def read_flags(system: str) -> Dict[str, Any]:
    """The flag set of a system as attributes: ``--head-composition linear`` -> ``head_composition="linear"``."""
    words = (FLAGS / f"{system}.txt").read_text(encoding="utf-8").split()
    flags: Dict[str, Any] = {}
    for number, word in enumerate(words):
        if word.startswith("--"):
            given = words[number + 1] if number + 1 < len(words) else "--"
            value: Any = True if given.startswith("--") else int(given) if given.isdigit() else given
            flags[word[2:].replace("-", "_")] = value
    return flags


def build_model(system: str, words: Dictionary, **overrides: Any) -> nn.Module:
    """Stock ``transformer``, or ``ni_transformer`` with a system's flags, at base size with shared embeddings."""
    arch, flags = (STOCK, {}) if system == STOCK else ("ni_transformer", read_flags(system))
    args = argparse.Namespace(dropout=0.1, share_all_embeddings=True, **flags, **overrides)
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words, datasets={}, load_dataset=lambda *_: None)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, source: Tensor, target: Tensor) -> None:
    """Forward, loss, backward, update."""
    optimizer.zero_grad(set_to_none=True)
    log_probabilities = model.get_normalized_probs(model(source, None, target), log_probs=True)
    loss, _ = label_smoothed_nll_loss(log_probabilities.flatten(0, 1), target.flatten().unsqueeze(1), 0.1)
    loss.backward()
    optimizer.step()


def decode(generator: SequenceGenerator, model: nn.Module, source: Tensor) -> Any:
    """Greedy translations of a batch."""
    lengths = torch.full((source.size(0),), source.size(1))
    return generator.generate([model], {"net_input": {"src_tokens": source, "src_lengths": lengths}})


def measure(systems: Sequence[str], *, rounds: int, length: int, batch: int, steps: int) -> List[Dict[str, Any]]:
    """One row a system and job: ratio of times to stock (median and range over rounds) and of multiply-adds."""
    words = Dictionary()
    for number in range(32000 - len(words)):
        words.add_symbol(f"w{number}")
    torch.manual_seed(1)
    source, target = (torch.randint(4, len(words), (batch, length)) for _ in range(2))
    models = {system: build_model(system, words) for system in (STOCK, *systems)}

    training: Dict[str, Callable[[], object]] = {}
    for system, model in models.items():
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
        training[system] = lambda model=model, optimizer=optimizer: training_step(
            model.train(), optimizer, source, target
        )
    rows = compare("training step", training, rounds, lambda system: models[system].train()(source, None, target))

    decoding: Dict[str, Callable[[], object]] = {}
    for system, model in models.items():
        generator = SequenceGenerator([model], words, beam_size=1, max_len_a=0, max_len_b=steps, min_len=steps)
        decoding[system] = lambda model=model, generator=generator: decode(generator, model, source)
        models[system].eval()
    return rows + compare("greedy decoding", decoding, rounds, lambda system: decoding[system]())


def compare(
    job: str, runs: Dict[str, Callable[[], object]], rounds: int, forward: Callable[[str], object]
) -> List[Dict[str, Any]]:
    """Times the runs against stock; ``forward`` runs what the multiply-adds are counted of."""
    times = interleave(runs, rounds)
    macs = {system: multiply_adds(lambda system=system: forward(system)) for system in runs}
    rows = []
    for system in runs:
        if system != STOCK:
            median, low, high = ratio(times[system], times[STOCK])
            rows.append(
                {
                    "job": job,
                    "system": system,
                    "ratio": median,
                    "range": [low, high],
                    "milliseconds": 1000 * statistics.median(times[system]),
                    "stock_milliseconds": 1000 * statistics.median(times[STOCK]),
                    "multiply_adds": macs[system],
                    "multiply_adds_ratio": macs[system] / macs[STOCK],
                }
            )
    return rows


def rows(systems: Sequence[str], *, rounds: int, length: int, batch: int, steps: int) -> List[Row]:
    """The same figures as rows of the harness; multiply-adds as what they alone would give."""
    setting = f"base, 32,000 types, {batch} x {length}, {steps} steps"
    made = []
    for found in measure(systems, rounds=rounds, length=length, batch=batch, steps=steps):
        limit = LIMITS[found["job"]] if found["system"] == "row8" else None
        job, system = "ni_transformer: times as long as stock", f"{found['system']}, {found['job']}"
        low, high = found["range"]
        figures = (found["ratio"], low, high, found["milliseconds"], found["multiply_adds_ratio"])
        made.append(Row(job, setting, system, *figures, limit, at_least=False))
    return made


def main(argv: Optional[Sequence[str]] = None) -> None:
    """The command-line tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted(file.stem for file in FLAGS.glob("*.txt"))
    parser.add_argument("--systems", nargs="+", default=["row6", "row7", "row8"], choices=known, metavar="SYSTEM")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", type=int, default=30, help="positions of source and target (30)")
    parser.add_argument("--batch", type=int, default=32, help="sentences (32)")
    parser.add_argument("--steps", type=int, default=30, help="tokens written in decoding (30)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    print(
        f"torch {torch.__version__}, {args.threads} threads, {platform.processor() or platform.machine()}, fp32, ",
        end="",
    )
    print(f"{args.batch} sentences of {args.length} positions, {args.steps} decoded, {args.rounds} rounds")
    print("| job | system | ms | stock ms | times as long | range | by multiply-adds | G mult-adds forward | limit |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = measure(args.systems, rounds=args.rounds, length=args.length, batch=args.batch, steps=args.steps)
    for row in rows:
        verdict = ""
        if row["system"] == "row8":
            limit = LIMITS[row["job"]]
            verdict = f"{limit:.2f} {'held' if round(row['ratio'], 2) <= limit else 'MISSED'}"
        low, high = row["range"]
        print(
            f"| {row['job']} | {row['system']} | {row['milliseconds']:.0f} | {row['stock_milliseconds']:.0f} | "
            f"{row['ratio']:.2f} | {low:.2f}-{high:.2f} | {row['multiply_adds_ratio']:.2f} | "
            f"{row['multiply_adds'] / 1e9:.1f} | {verdict} |"
        )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
