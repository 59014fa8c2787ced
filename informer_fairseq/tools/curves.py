"""Draws validation curves, perplexity and BLEU, from training logs, and writes their numbers as CSV.

    informer-fairseq curves --run transformer=runs/transformer/train.log informer_mt=runs/informer_mt/train.log \\
        --output curves.svg
    informer-fairseq curves --run informer_mt=seed1.log,seed2.log long=first.log+resumed.log --output curves.png

Logs are what fairseq-train printed or wrote to --log-file, in the formats simple, tqdm and json. Commas part the seeds
of a run: the line is their mean, the band goes from the smallest to the largest. A plus joins the log of a run with
those of its resumptions; within a log, too, a resumed run's validations replace earlier ones at the same or more
updates. Perplexity is 2 to the power of the validation loss in bits per target token; BLEU is there for runs with
--eval-bleu.
"""

import argparse
import csv
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import check_outputs, split_label, table, write_json, write_whole
from informer_fairseq.tools.training_logs import Validation, read_validations

Runs = Dict[str, Dict[str, List[Validation]]]
METRICS = {"perplexity": "perplexity (2^bits per target token)", "bleu": "BLEU (0 to 100)"}
X_LABELS = {"epoch": "epoch", "updates": "updates (optimizer steps)"}
COLUMNS = ("run", "log", "subset", "epoch", "updates", "perplexity", "bleu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand's flags."""
    parser.add_argument(
        "--run",
        dest="runs",  # args.run is the subcommand itself
        nargs="+",
        action="extend",
        required=True,
        metavar="LABEL=LOG[,LOG]",
        help="runs with their seeds' logs",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the picture, .png or .svg")
    parser.add_argument("--csv", metavar="FILE", help="the numbers (the picture's name with .csv)")
    parser.add_argument("--x", choices=X_LABELS, help="horizontal axis (epoch, if there is one validation in each)")
    parser.add_argument("--metric", nargs="+", choices=METRICS, help="what to draw (perplexity, and BLEU where logged)")
    parser.add_argument("--subset", default="valid", metavar="NAME", help="the validation set (valid)")
    parser.add_argument("--title", metavar="TEXT", help="above the picture (Validation on SUBSET)")
    parser.add_argument("--json", metavar="FILE", help="also write everything here")


def run(args: argparse.Namespace) -> None:
    """Reads the logs, then draws and writes everything."""
    from informer_fairseq.tools import plots  # matplotlib takes a second to load

    plots.check_format(args.output)
    numbers = args.csv or str(Path(args.output).with_suffix(".csv"))
    check_outputs(args.output, numbers, args.json)
    runs = read_runs(args.runs, args.subset)
    metrics = args.metric or [
        name for name in METRICS if name == "perplexity" or any(_all_log(logs, name) for logs in runs.values())
    ]
    all_logs = [log for logs in runs.values() for log in logs.values()]
    x = args.x or ("epoch" if all(map(_epochs_are_distinct, all_logs)) else "updates")
    panels, notes = [], []
    for metric in metrics:
        lines = []
        for label, logs in runs.items():
            if not args.metric and metric == "bleu" and not _all_log(logs, metric):
                notes.append(f"{label}: no bleu in every log, so no line")
                continue
            line = plots.Line(label=label, **average_seeds(logs, x, metric, label))
            lines.append(line)
            most = max(len(log) for log in logs.values())
            if len(line.x) < most:
                notes.append(f"{label}: {metric} drawn at {len(line.x)} of {most} validations, where all seeds have it")
        panels.append(plots.Panel(lines, X_LABELS[x], METRICS[metric]))
    plots.draw(panels, args.title or f"Validation on '{args.subset}'", args.output)
    _write_csv(numbers, runs)
    write_json(args.json, {"runs": {label: _as_json(logs) for label, logs in runs.items()}, "x": x})
    print("\n".join([*table(_summary(runs)), *notes]))
    print(f"{args.output}: {', '.join(metrics)} by {x}; numbers in {numbers}")


def read_runs(entries: Sequence[str], subset: str) -> Runs:
    """Validations of every run by label and by log.

    Args:
        entries: ``LABEL=LOG[+RESUMED][,LOG...]``; without a label the log's path is one.
        subset: the validation set's name.

    Raises:
        InputError: two runs have one label, or a log has no validation.
    """
    runs: Runs = {}
    for entry in entries:
        label, paths = split_label(entry)
        if label in runs:
            raise InputError(f"two runs are called {label}: join a run's seeds by commas, {label}=LOG,LOG")
        seeds = [seed for seed in paths.split(",") if seed]
        if len(set(seeds)) < len(seeds) or not seeds:
            raise InputError(f"--run {entry} has no log, or one twice: give each seed's log once, LABEL=LOG,LOG")
        runs[label] = {seed: read_validations(seed.split("+"), subset) for seed in seeds}
    return runs


def average_seeds(logs: Dict[str, List[Validation]], x: str, metric: str, label: str) -> Dict[str, List[float]]:
    """One run's line: mean, smallest and largest over its seeds, where all of them have been validated.

    Returns:
        ``x``, ``y``, ``low`` and ``high``, equally long.

    Raises:
        InputError: a log lacks the metric, has several validations in an epoch that epochs are to be drawn by, or the
            seeds have no x in common.
    """
    curves = []
    for path, log in logs.items():
        if x == "epoch" and not _epochs_are_distinct(log):
            raise InputError(f"{path} has several validations in one epoch: draw with --x updates")
        curve = {getattr(one, x): getattr(one, metric) for one in log if getattr(one, metric) is not None}
        if not curve:
            advice = "train with --eval-bleu" if metric == "bleu" else "it was not finite in any validation"
            raise InputError(f"{path} has no {metric}: {advice}, or choose other curves with --metric")
        curves.append(curve)
    common = sorted(set.intersection(*(set(curve) for curve in curves)))
    if not common:
        raise InputError(f"the seeds of {label} were never validated at the same {x}: draw them as runs of their own")

    def over_seeds(pick: Callable[[List[float]], float]) -> List[float]:
        return [pick([curve[place] for curve in curves]) for place in common]

    return {"x": common, "y": over_seeds(statistics.fmean), "low": over_seeds(min), "high": over_seeds(max)}


def _epochs_are_distinct(log: Sequence[Validation]) -> bool:
    epochs = [one.epoch for one in log]
    return len(set(epochs)) == len(epochs)


def _all_log(logs: Dict[str, List[Validation]], metric: str) -> bool:
    return all(any(getattr(one, metric) is not None for one in log) for log in logs.values())


def _write_csv(path: str, runs: Runs) -> None:
    with write_whole(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(COLUMNS)
        for label, logs in runs.items():
            for log, validations in logs.items():
                for one in validations:
                    row = [one.subset, one.epoch, one.updates, one.perplexity, one.bleu]
                    writer.writerow([label, log, *("" if value is None else value for value in row)])


def _as_json(logs: Dict[str, List[Validation]]) -> Dict[str, Any]:
    return {path: [vars(validation) for validation in log] for path, log in logs.items()}


def _summary(runs: Runs) -> List[List[str]]:
    rows = [["run", "log", "validations", "last epoch", "updates", "last perplexity", "best", "last BLEU", "best"]]
    for label, logs in runs.items():
        for path, log in logs.items():
            last = log[-1]
            cells = []
            for metric, best in (("perplexity", min), ("bleu", max)):
                values = [getattr(one, metric) for one in log if getattr(one, metric) is not None]
                cells += [f"{value:.2f}" for value in (values[-1], best(values))] if values else ["-", "-"]
            rows.append([label, path, str(len(log)), str(last.epoch), str(last.updates), *cells])
    return rows
