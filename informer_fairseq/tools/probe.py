"""The ten probing tasks on the encoders of trained checkpoints (NI paper, Table 3; Conneau et al., 2018).

A sentence is the mean of its encoder states over its own tokens (</s> is read, but not averaged). A classifier with one
hidden layer learns each task from these vectors; the encoder stays fixed. States are computed once and cached by the
content of checkpoint and data.

    informer-fairseq probe --data probing --checkpoint stock=run1/averaged.pt ni=run2/averaged.pt \\
        --data-bin data-bin --segmentation-model segmented/model --tokenize moses --untrained

Files: TASK.txt with "tr/va/te TAB label TAB sentence", or TASK/tr.txt, va.txt, te.txt with "sentence TAB label"; .gz
works. Splits that are missing are made from those there are, and the output says how.

    informer-fairseq probe --make bigram_shift --text english.txt --output probing
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import parse_labelled, write_json
from informer_fairseq.tools.models import load_model
from informer_fairseq.tools.probe_classifier import fit_probe
from informer_fairseq.tools.probe_data import GROUPS, TASKS, ProbingTask, find_tasks, read_task
from informer_fairseq.tools.probe_make import make_task
from informer_fairseq.tools.probe_states import StateStore, default_cache
from informer_fairseq.tools.probe_text import build_pipeline, check_pipeline, holds_escapes

UNTRAINED = "untrained"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand's options."""
    data = parser.add_argument_group("what is probed")
    data.add_argument("--data", metavar="FOLDER", help="the probing tasks")
    data.add_argument(
        "--tasks", nargs="+", choices=TASKS, metavar="TASK", help=f"of {', '.join(TASKS)} (all there are)"
    )
    data.add_argument("--checkpoint", nargs="+", metavar="[LABEL=]FILE", help="one or more, side by side")
    data.add_argument("--untrained", action="store_true", help="also an untrained encoder with the first one's flags")
    data.add_argument("--data-bin", metavar="FOLDER", help="where the dictionaries are (where training found them)")
    text = parser.add_argument_group("the checkpoint's text")
    pieces = text.add_mutually_exclusive_group()
    pieces.add_argument("--segmentation-model", metavar="FOLDER", help="a folder with segmentation.json")
    pieces.add_argument("--bpe-codes", metavar="FILE", help="merges by subword-nmt")
    pieces.add_argument("--sentencepiece-model", metavar="FILE", help="a sentencepiece model")
    text.add_argument("--tokenize", choices=("moses", "none"), default="none", help="before the pieces (none)")
    probe = parser.add_argument_group("the probe")
    probe.add_argument("--hidden", type=int, default=128, metavar="N", help="units of its hidden layer (128)")
    probe.add_argument("--seed", type=int, default=1, metavar="N", help="of probe, untrained encoder and --make (1)")
    probe.add_argument("--limit", type=int, metavar="N", help="the most sentences of each split (all)")
    probe.add_argument("--skip-long", action="store_true", help="leave out, and count, what the encoder cannot take")
    probe.add_argument("--cache", metavar="FOLDER", help=f"where states are kept ({default_cache()})")
    probe.add_argument("--no-cache", action="store_true", help="keep no states")
    probe.add_argument("--json", metavar="FILE", help="the results, for programs")
    make = parser.add_argument_group("a task of your own text")
    make.add_argument("--make", choices=("sentence_length", "word_content", "bigram_shift"), help="make this task")
    make.add_argument("--text", metavar="FILE", help="tokenised text, a sentence a line")
    make.add_argument("--output", metavar="FOLDER", help="where TASK.txt goes")
    make.add_argument("--size", type=int, default=120000, metavar="N", help="the most examples (120000)")
    make.add_argument("--words", type=int, default=1000, metavar="N", help="target words of word_content (1000)")
    make.add_argument("--first-rank", type=int, default=2001, metavar="N", help="the first one's frequency rank (2001)")


def run(args: argparse.Namespace) -> None:
    """Makes a task, or probes.

    Raises:
        InputError: flags, files or text do not fit.
    """
    for name in ("hidden", "limit", "size", "words", "first_rank"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value} is less than 1")
    if args.make:
        _need(args, "--make", "text", "output")
        path, counts = make_task(
            args.make,
            Path(args.text),
            Path(args.output),
            seed=args.seed,
            size=args.size,
            count=args.words,
            first_rank=args.first_rank,
        )
        print(f"{path}: " + ", ".join(f"{counts[split]:,} {split}" for split in counts))
        if args.json:
            write_json(args.json, {"file": str(path), "examples": counts})
        return
    _need(args, "probe", "data", "checkpoint")
    probe(args)


def _need(args: argparse.Namespace, what: str, *names: str) -> None:
    missing = [f"--{name.replace('_', '-')}" for name in names if not getattr(args, name)]
    if missing:
        raise InputError(f"{what} needs {' and '.join(missing)}")


def probe(args: argparse.Namespace) -> None:
    """Probes every checkpoint on every task; prints the table and writes the JSON."""
    tasks = [
        read_task(name, files, args.limit) for name, files in find_tasks(Path(args.data), args.tasks).items()
    ]  # all of them before any work: a bad line in the last file costs no time
    checkpoints: List[Tuple[str, Path, Optional[int]]] = [
        (label, path, None) for label, path in parse_labelled(args.checkpoint, "--checkpoint")
    ]
    if args.untrained:
        if UNTRAINED in (label for label, _, _ in checkpoints):
            raise InputError(f"the label {UNTRAINED!r} is the untrained encoder's; give the checkpoint another")
        checkpoints.append((UNTRAINED, checkpoints[0][1], args.seed))
    results: Dict[str, Dict[str, Any]] = {}
    for label, path, seed in checkpoints:
        results[label] = probe_checkpoint(label, path, seed, tasks, args)
    summary = {
        "data": args.data,
        "hidden": args.hidden,
        "seed": args.seed,
        "tasks": {task.name: _describe(task) for task in tasks},
        "checkpoints": results,
    }
    if args.json:
        write_json(args.json, summary)
    print(table(summary))


def _describe(task: ProbingTask) -> Dict[str, Any]:
    sizes = {"train": len(task.train), "valid": len(task.valid), "test": len(task.test)}
    return {"group": TASKS[task.name][0], **sizes, "labels": len({label for _, label in task.train}), "note": task.note}


def probe_checkpoint(
    label: str, path: Path, seed: Optional[int], tasks: List[ProbingTask], args: argparse.Namespace
) -> Dict[str, Any]:
    """One checkpoint's accuracy on every task, and their averages by group."""
    trained = load_model(path, args.data_bin, seed)
    pipeline = build_pipeline(
        language=trained.source_lang,
        tokenize=args.tokenize,
        model_folder=args.segmentation_model,
        bpe_codes=args.bpe_codes,
        sentencepiece_model=args.sentencepiece_model,
    )
    check_pipeline(pipeline, trained.source, path)
    if args.tokenize == "none" and holds_escapes(trained.source):
        print(f"note: the dictionary of {path} holds Moses' escapes; --tokenize moses fits it", file=sys.stderr)
    cache = None if args.no_cache else Path(args.cache) if args.cache else default_cache()
    store = StateStore(
        trained=trained,
        pipeline=pipeline,
        checkpoint=path,
        cache=cache,
        untrained_seed=seed,
        skip_long=args.skip_long,
    )
    scores: Dict[str, Dict[str, Any]] = {}
    for task in tasks:
        splits = (task.train, task.valid, task.test)
        everything = store.states([sentence for split in splits for sentence, _ in split], f"{label}, {task.name}")
        features = np.split(everything, np.cumsum([len(split) for split in splits])[:-1])
        kept = [~np.isnan(rows[:, 0]) for rows in features]
        labels = [[name for (_, name), keep in zip(split, rows) if keep] for split, rows in zip(splits, kept)]
        found = fit_probe(
            [rows[keep] for rows, keep in zip(features, kept)], labels, hidden=args.hidden, seed=args.seed
        )
        left_out = int(sum((~keep).sum() for keep in kept))
        scores[task.name] = {**vars(found), "too_long": left_out}
        print(f"{label}, {task.name}: {100 * found.accuracy:.2f} after {found.epochs} epochs", file=sys.stderr)
    averages = {}
    for group in GROUPS:
        members = [scores[name]["accuracy"] for name in scores if TASKS[name][0] == group]
        if members:
            averages[group] = statistics.fmean(members)
    averages["all"] = statistics.fmean(score["accuracy"] for score in scores.values())
    unknown = store.unknown / store.pieces if store.pieces else None
    return {"file": str(path), "untrained_seed": seed, "unknown": unknown, "tasks": scores, "averages": averages}


def table(summary: Dict[str, Any]) -> str:
    """The results as people read them: one row a task, one column a checkpoint, accuracy in per cent."""
    results = summary["checkpoints"]
    first = next(iter(results.values()))
    rows = [["task", "", *results, "majority", "test"]]
    for group in GROUPS:
        names = [name for name in summary["tasks"] if TASKS[name][0] == group]
        for name in names:
            cells = [f"{100 * result['tasks'][name]['accuracy']:.2f}" for result in results.values()]
            majority = f"{100 * first['tasks'][name]['majority']:.2f}"
            rows.append([name, TASKS[name][1], *cells, majority, f"{summary['tasks'][name]['test']:,}"])
        if names:
            cells = [f"{100 * result['averages'][group]:.2f}" for result in results.values()]
            rows.append([f"{group}, average of {len(names)}", "", *cells, "", ""])
    rows.append(["all tasks", "", *(f"{100 * result['averages']['all']:.2f}" for result in results.values()), "", ""])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if column < 2 else cell.rjust(w) for column, (cell, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    for name, task in summary["tasks"].items():
        left_out = max(result["tasks"][name]["too_long"] for result in results.values())
        notes = [task["note"], f"{left_out} too long, left out" if left_out else ""]
        if any(notes):
            lines.append(f"{name}: {'; '.join(filter(None, notes))}")
    for label, result in results.items():
        if result["unknown"]:
            lines.append(f"{label}: {100 * result['unknown']:.2f} % of the pieces are unknown to its dictionary")
    return "\n".join(lines)
