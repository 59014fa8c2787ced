"""What the systems of finished runs cost beside a baseline: a training step, the memory it keeps, decoding.

    cd work/multi30k_en_de
    run=../../examples/multi30k_en_de
    python $run/costs.py prepared/data-bin transformer-seed1 informer_mt-seed1 --output costs.json

Every system is built from its best checkpoint and takes the same batches of the data, in one process, by turns. Speeds
are of the trainer's step (model, loss, backward, update) and of fairseq's own beam search with the trained model: times
as fast as the first run's system, the median over rounds of the ratio within a round. Bytes kept are what autograd
holds for the backward pass of the whole model and its loss, each storage once, parameters apart: they do not scatter.
"""

import argparse
import logging
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fairseq import checkpoint_utils, tasks
from fairseq.trainer import Trainer
from table import COSTS, read_summary

import informer_fairseq  # noqa: F401  (registers the architectures)
from benchmarks.machine import environment
from benchmarks.side_by_side import interleave, ratio, saved_bytes
from informer_fairseq.tools.files import table, write_json
from preprocess.files import InputError, run_tool


class System(NamedTuple):
    """One run's system: a trainer of it, and its trained model for decoding."""

    name: str
    trainer: Any
    model: Any


def read_name(folder: Path) -> str:
    """The system's name by the run's summary.

    Raises:
        InputError: the run was not scored, or its checkpoints are gone.
    """
    name = str(read_summary(folder)["system"])
    if not (folder / "checkpoints/checkpoint_best.pt").is_file():
        raise InputError(f"{folder} has no checkpoints/checkpoint_best.pt: train it again, or leave it out")
    return name


def build(folder: Path, data: str) -> System:
    """From the run's best checkpoint: a fresh trainer with its settings, and the model as it was trained."""
    path = str(folder / "checkpoints/checkpoint_best.pt")
    cfg = checkpoint_utils.load_checkpoint_to_cpu(path)["cfg"]
    cfg.task.data = data
    cfg.common.cpu = not torch.cuda.is_available()
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(cfg.common.seed)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    (model,), _ = checkpoint_utils.load_model_ensemble([path], task=task)
    model.prepare_for_inference_(cfg)
    return System(read_name(folder), trainer, model)


def batches(system: System, split: str, count: int, **limits: Any) -> List[Dict[str, Any]]:
    """Some of a split's batches, spread evenly from the shortest sentences to the longest, on the trainer's device."""
    task = system.trainer.task
    task.load_dataset(split)
    iterator = task.get_batch_iterator(task.dataset(split), required_batch_size_multiple=1, **limits)
    found = list(iterator.next_epoch_itr(shuffle=False))
    if len(found) < count:
        raise InputError(f"{split} has {len(found)} batches, fewer than --batches {count}: take fewer")
    chosen = [found[(2 * number + 1) * len(found) // (2 * count)] for number in range(count)]
    return [system.trainer._prepare_sample(sample)[0] for sample in chosen]


def measure(systems: Sequence[System], count: int, rounds: int, beam: int) -> Dict[str, Dict[str, Any]]:
    """Figures by system, the first one the baseline."""
    first = systems[0]
    train = batches(first, "train", count, max_tokens=first.trainer.cfg.dataset.max_tokens)
    test = batches(first, "test", count, max_sentences=64)

    def step(system: System) -> Callable[[], None]:
        def run() -> None:
            for sample in train:
                system.trainer.train_step([sample])

        return run

    def decode(system: System) -> Callable[[], None]:
        generator = system.trainer.task.build_generator([system.model], argparse.Namespace(beam=beam))

        def run() -> None:
            for sample in test:
                system.trainer.task.inference_step(generator, [system.model], sample)

        return run

    def kept(system: System) -> int:
        model, criterion = system.trainer.model, system.trainer.criterion
        return sum(saved_bytes(partial(lambda sample: criterion(model, sample)[0], one), model) for one in train)

    steps = interleave({system.name: step(system) for system in systems}, rounds)
    decodings = interleave({system.name: decode(system) for system in systems}, rounds)
    bytes_of = {system.name: kept(system) for system in systems}
    figures: Dict[str, Dict[str, Any]] = {}
    for system in systems:
        name = system.name
        figures[name] = {"parameters": sum(parameter.numel() for parameter in system.trainer.model.parameters())}
        for key, times in (("training speed", steps), ("decoding speed", decodings)):
            median, low, high = ratio(times[first.name], times[name])
            figures[name][key] = {"figure": median, "low": low, "high": high}
        figures[name]["bytes kept"] = {"figure": bytes_of[name] / bytes_of[first.name]}
    return figures


def show(figures: Dict[str, Dict[str, Any]], baseline: str) -> List[str]:
    """The table, in Markdown."""
    rows = [["system", "parameters", *(f"{column}, of {baseline}'s" for column in COSTS)]]
    for name, found in figures.items():
        cells = [f"`{name}`", f"{found['parameters']:,}"]
        for value in (found[column] for column in COSTS):
            spread = f" ({value['low']:.2f}-{value['high']:.2f})" if "low" in value else ""
            cells.append(f"{value['figure']:.2f}{spread}")
        rows.append(cells)
    return table(rows)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line, prints the table, writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA_BIN")
    parser.add_argument("runs", nargs="+", metavar="FOLDER", help="finished runs; the first is the baseline")
    parser.add_argument("--batches", type=int, default=4, metavar="N", help="of training and of test in a round (4)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="(7)")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="(5)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="(1, as runs are trained)")
    parser.add_argument("--output", metavar="FILE", help="write the figures here as JSON, for table.py --costs")
    args = parser.parse_args(argv)
    folders = [Path(run) for run in args.runs]
    names = [read_name(folder) for folder in folders]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"two runs of {twice[0]}: give one seed of each system")
    torch.set_num_threads(args.threads)
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")  # of hydra and torch, about fairseq
    systems = [build(folder, args.data) for folder in folders]
    figures = measure(systems, args.batches, args.rounds, args.beam)
    where = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"), args.threads)
    print("\n".join([where, "", *show(figures, names[0])]))
    if args.output:
        write_json(args.output, {"environment": where, "baseline": names[0], "systems": figures})


if __name__ == "__main__":
    run_tool(main)
