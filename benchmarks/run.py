"""All measurements, side by side with stock fairseq in one run: speed, memory, loss, training steps, decoding.

``python benchmarks/run.py`` prints one table a job, with every figure that the project promises marked as held or
MISSED. A CUDA device is used where there is one (``--device cpu`` to leave it).
Rounds are interleaved and each starts with another system; a figure is the median over rounds of the ratio within a
round, its range beside it. Multiply-adds are torch's own count (``torch.utils.flop_counter``) of a forward pass.
Each job runs in a process of its own, so that its memory goes back.
"""

import argparse
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import informer_fairseq  # noqa: E402, F401  (registers the architectures)
from benchmarks import decoding, encoders, losses, ni_speed, training_steps  # noqa: E402
from benchmarks.machine import environment  # noqa: E402
from benchmarks.rows import Row, markdown, unique  # noqa: E402
from informer_fairseq.tools.files import write_file  # noqa: E402

SHAPES = ((20, 100), (50, 40), (200, 10), (1000, 2), (4000, 1))
SMALL_SHAPES = ((10, 4), (40, 2), (400, 1))


def jobs(small: bool, rounds: int, device: torch.device) -> Dict[str, Callable[[], List[Row]]]:
    """What can be run, by name; each returns rows."""
    cpu = device.type == "cpu"
    table3, multi30k = ("small", "small") if small else ("table3", "multi30k")
    shapes = SMALL_SHAPES if small else SHAPES
    few = max(1, rounds // 2)

    def encoder() -> List[Row]:
        rows = encoders.measure([shape for shape in shapes if shape[0] <= 200], rounds, 6, device, torch.float32)
        rows += encoders.measure([shape for shape in shapes if shape[0] > 200], rounds, 2, device, torch.float32)
        return rows

    def decode() -> List[Row]:
        base = training_steps.Setting("", 500, 500, 4, 5, True) if small else None
        rows: List[Row] = []
        for tiny in (False, True):
            types = 9696 if tiny else 7709
            setting = base or training_steps.Setting("", types, types, 32 if tiny else 16, 20, tiny)
            for beam in (1, 5):
                rows += decoding.measure(setting, beam, (3 if tiny else 1) * rounds, device)
        return rows

    def neuron_interaction() -> List[Row]:
        sizes = {"length": 8, "batch": 2, "steps": 4} if small else {"length": 30, "batch": 32, "steps": 30}
        return ni_speed.rows(["row8"], rounds=rounds, **sizes)

    return {
        "encoder": encoder,
        "loss": lambda: losses.measure([(100, 16, 500)] if small else losses.SHAPES, rounds, device),
        # Each system at Table 3's sizes holds 1.6 GB.
        "step": lambda: training_steps.measure(table3, rounds, ("informer_mt", "linformer_informer_mt"), cpu),
        "tiny_step": lambda: training_steps.measure(multi30k, 2 * rounds, training_steps.ARCHS, cpu),
        "peak": lambda: [
            row for key in unique((table3, multi30k)) for row in training_steps.measure_peak(key, ("informer_mt",), cpu)
        ],
        "bf16": lambda: training_steps.measure_bf16(table3, few, ("informer_mt",), cpu),
        "decoding": decode,
        "processes": lambda: decoding.measure_processes(40 if small else 1000, 1 if small else 2),
        "ni": neuron_interaction,
    }


def run_job(name: str, small: bool, rounds: int, device: torch.device, threads: int) -> List[Row]:
    """The rows of one job."""
    torch.set_num_threads(threads)
    rows = jobs(small, rounds, device)[name]()
    return [replace(row, limit=None) for row in rows] if small else rows  # nothing is promised of small shapes


def plot(rows: Sequence[Row], path: str) -> None:
    """Cost of a layer's training pass against T, both axes logarithmic, with what the multiply-adds give."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points: Dict[str, List[Tuple[int, float, Optional[float]]]] = {}
    for row in rows:
        if row.job.startswith("Encoder layers"):
            length = int(row.setting.split(",")[0][2:])
            name = row.system.replace(", groups of 200", "")
            points.setdefault(name, []).append((length, 1 / row.figure, None if row.ideal is None else 1 / row.ideal))
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name, found in points.items():
        (line,) = axes.plot([length for length, _, _ in found], [cost for _, cost, _ in found], marker="o", label=name)
        ideal = [(length, cost) for length, _, cost in found if cost is not None]
        axes.plot([length for length, _ in ideal], [cost for _, cost in ideal], ":", color=line.get_color())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("positions T (about 2,000 tokens a batch)")
    axes.set_ylabel("time of a training pass, stock = 1")
    axes.set_title("Encoder layers; dotted: by multiply-adds")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """The command-line tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(jobs(True, 1, torch.device("cpu")))
    parser.add_argument("--jobs", nargs="+", default=names, choices=names, metavar="JOB", help=", ".join(names))
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement; more of the quick ones (3)")
    parser.add_argument("--small", action="store_true", help="small shapes: to see that all of it works, in a minute")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables here")
    parser.add_argument("--plot", metavar="FILE", help="write the plot here (.svg, .png)")
    args = parser.parse_args(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device; use --device cpu")
    use_cuda = args.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    head = environment(device, args.threads)
    print(head, flush=True)
    start, rows = time.perf_counter(), []
    context = multiprocessing.get_context("spawn")  # neither CUDA nor OpenMP's threads outlive a fork
    for name in [name for name in names if name in args.jobs]:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            made = pool.submit(run_job, name, args.small, args.rounds, device, args.threads).result()
        rows += made
        print("\n" + markdown(made), flush=True)
    missed = [row for row in rows if row.held is False]
    promised = [row for row in rows if row.held is not None]
    summary = f"{len(promised) - len(missed)} of {len(promised)} promised figures held, {len(missed)} missed"
    summary += f"; {time.perf_counter() - start:.0f} s"
    print(summary)
    if args.json:
        figures: Dict[str, Any] = {"environment": head, "rows": [{**asdict(row), "held": row.held} for row in rows]}
        write_file(args.json, json.dumps(figures, indent=1) + "\n")
    if args.markdown:
        write_file(args.markdown, f"{head}\n\n{markdown(rows)}\n{summary}\n")
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
