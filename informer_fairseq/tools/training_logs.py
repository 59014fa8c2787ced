"""Validations in fairseq's training logs: what ``simple``, ``tqdm`` and ``json`` formats print, resumed runs joined."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import read_lines

_PIPES = re.compile(r"epoch (\d+) \| valid on '([^']+)' subset \| (.*num_updates.*)")
_JSON = re.compile(r'\{"epoch": \d+, .*\}')


@dataclass(frozen=True)
class Validation:
    """One validation.

    Attributes:
        subset: the set's name in the data-bin.
        epoch: counted from 1.
        updates: optimizer steps up to here.
        perplexity: 2 to the power of the loss in bits per target token, without label smoothing; None if not logged.
        bleu: of ``--eval-bleu``, 0 to 100; None without it.
        bits: the loss in bits per target token; None if neither it nor the perplexity was logged.
    """

    subset: str
    epoch: int
    updates: int
    perplexity: Optional[float]
    bleu: Optional[float]
    bits: Optional[float] = None


def read_validations(paths: Sequence[str], subset: str) -> List[Validation]:
    """The validations on one set, in the order of updates.

    A run that was resumed starts again from a checkpoint: its validations replace those at the same or more updates
    that an earlier part, of the same file or of a file before it, had already logged.

    Args:
        paths: the logs of one run, in the order of time; a folder stands for the ``train.log`` in it.
        subset: the set's name, such as ``valid``.

    Raises:
        InputError: a log is missing, or has no validation on this set.
    """
    joined: List[Validation] = []
    for path in paths:
        log = find_log(path)
        found = list(parse_validations(read_lines(log)))
        chosen = [validation for validation in found if validation.subset == subset]
        if not chosen:
            others = sorted({validation.subset for validation in found})
            way_out = (
                f"it has some on {', '.join(others)}: choose with --subset"
                if others
                else "give a log of fairseq-train with --log-format simple, tqdm or json, without --disable-validation"
            )
            raise InputError(f"{log} has no validation on '{subset}'; {way_out}")
        for validation in chosen:
            while joined and joined[-1].updates >= validation.updates:
                joined.pop()
            joined.append(validation)
    return joined


def find_log(path: str) -> Path:
    """The log that ``path`` names: a file, or the ``train.log`` of a run's folder; Raises InputError."""
    log = Path(path)
    if not log.is_dir():
        return log
    if not (log / "train.log").is_file():
        raise InputError(f"no run in {path}: expected its train.log there; give the log's own path")
    return log / "train.log"


def parse_validations(lines: Sequence[str]) -> Iterator[Validation]:
    """The validations on all sets, in the order of the log; numbers that are not finite count as not logged."""
    for line in lines:
        for text in line.split("\r"):  # tqdm redraws its bar in place
            pipes = _PIPES.search(text)
            if pipes:
                words = (entry.split() for entry in pipes.group(3).split("|"))
                stats: Dict[str, Any] = {entry[0]: entry[1] for entry in words if len(entry) == 2}
                yield _validation(pipes.group(2), int(pipes.group(1)), stats)
            elif _JSON.search(text):
                yield from _parse_json(text)


def _parse_json(text: str) -> Iterator[Validation]:
    match = _JSON.search(text)
    try:
        entry = json.loads(match.group()) if match else {}
    except json.JSONDecodeError:  # cut off where the run was killed
        return
    subset = next((key[: -len("_num_updates")] for key in entry if key.endswith("_num_updates")), None)
    if subset not in (None, "train"):  # "train" is the summary of the epoch's training
        stats = {key[len(subset) + 1 :]: value for key, value in entry.items() if key.startswith(f"{subset}_")}
        yield _validation(subset, int(entry["epoch"]), stats)


def _validation(subset: str, epoch: int, stats: Dict[str, Any]) -> Validation:
    bits = read_number(stats.get("nll_loss"))
    perplexity = read_number(stats["ppl"]) if "ppl" in stats else None if bits is None else 2**bits
    if bits is None and perplexity:  # without label smoothing fairseq logs the loss alone
        bits = math.log2(perplexity)
    return Validation(subset, epoch, int(float(stats["num_updates"])), perplexity, read_number(stats.get("bleu")), bits)


def read_number(value: Any) -> Optional[float]:
    """A number as fairseq logs it, in words or not; None if it is none, or not finite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
