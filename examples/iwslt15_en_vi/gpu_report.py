"""What a training within a limit of time brings back: its log's figures, the checks on them, the report."""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

from benchmarks.checks import Check, checked
from informer_fairseq.errors import InputError
from informer_fairseq.tools.training_logs import parse_validations


@dataclass
class Log:
    """What the training's log says."""

    losses: List[float] = field(default_factory=list)
    speeds: List[float] = field(default_factory=list)
    validations: List[float] = field(default_factory=list)  # bits a token
    tokens: float = 0.0
    updates: int = 0
    epochs: int = 0
    parameters: Optional[int] = None
    overflows: int = 0


def read_log(lines: Sequence[str]) -> Log:
    """Reads fairseq-train's lines in JSON; losses are those between the epochs' ends where there are two or more."""
    log = Log()
    by_epoch: List[float] = []
    for line in lines:
        log.overflows += "gradient overflow detected" in line
        counted = re.search(r"num\. shared model params: ([\d,]+)", line)
        if counted:
            log.parameters = int(counted[1].replace(",", ""))
        start = line.find('{"epoch"')
        if start < 0:
            continue
        entry = json.loads(line[start:])
        if "train_loss" in entry:
            by_epoch.append(float(entry["train_loss"]))
            updates = int(entry["train_num_updates"])
            log.tokens += float(entry["train_wpb"]) * (updates - log.updates)
            log.updates, log.epochs = updates, int(entry["epoch"])
            speed_of_epoch = float(entry["train_wps"])
        elif "update" in entry:
            log.losses.append(float(entry["loss"]))
            log.speeds.append(float(entry["wps"]))
    if len(log.losses) < 2:
        log.losses = by_epoch
    if not log.speeds and by_epoch:
        log.speeds = [speed_of_epoch]
    found = [one for one in parse_validations(lines) if one.subset == "valid"]
    log.validations = [math.nan if one.bits is None else one.bits for one in found]
    return log


def check_training(log: Log, types: int) -> List[Check]:
    """The loss is finite and falls, and the model has learned more than how many types there are."""
    losses, bits = log.losses, log.validations

    def falls() -> float:
        if len(losses) < 2:
            raise InputError(f"{len(losses)} losses in the log, two are needed: give it more MINUTES")
        return losses[-1] / losses[0]

    return [
        checked(
            "training losses and validations that are no finite number",
            0,
            lambda: sum(not math.isfinite(number) for number in (*losses, *bits)) + (not losses) + (not bits),
        ),
        checked(f"last training loss of {len(losses)}, of the first", 0.999, falls),
        checked("last validation, bits a token, of those of a guess", 0.999, lambda: bits[-1] / math.log2(types)),
    ]


def report(summary: Dict[str, Any], checks: Sequence[Check]) -> str:
    """The summary for people."""
    memory = f"peak memory {summary['peak_memory_bytes'] / 2**30:.2f} GiB ({summary['peak_memory_of']})"
    speed = f"{summary['target_tokens_per_second']:,.0f} target tokens a second (median of the log's)"
    size = f"{summary['parameters']:,} parameters, checkpoint {summary['checkpoint_bytes']:,} bytes"
    done = f"{summary['updates']:,} updates, {summary['epochs']} epochs, {summary['target_tokens']:,} target tokens"
    lines = [summary["title"], summary["environment"], size, done, f"{speed}, {memory}"]
    lines.append("seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in summary["seconds"].items()))
    bits = summary["validation_bits"]
    if bits:
        lines.append(f"validation: {bits[-1]} bits a token, perplexity {2 ** bits[-1]:.2f}")
    for split, one in summary["sets"].items():
        lines.append(f"{split}: {one['hypotheses']} hypotheses, {one['empty']} empty, scored as {one['text']}")
        lines += [f"  {name} = {score['score']:.2f}  {score['signature']}" for name, score in one["scores"].items()]
    failed = sum(not check.held for check in checks)
    return "\n".join([*lines, *(check.line() for check in checks), f"{failed} of {len(checks)} checks failed"]) + "\n"
