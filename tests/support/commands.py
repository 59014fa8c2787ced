"""fairseq's commands, called in this process, and what they print."""

import json
import logging
import re
from collections import defaultdict
from types import SimpleNamespace

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import progress_bar
from fairseq_cli import generate, interactive, train, validate

from tests.support.checkpoints import LENGTHS, SIZES
from tests.support.models import POSITION_FREE

TRAINING = (
    "--dropout 0 --optimizer adam --lr 1e-3 --criterion label_smoothed_cross_entropy "
    "--required-batch-size-multiple 1 --num-workers 0 --seed 3 --no-progress-bar --log-format json --log-interval 1"
).split()
GENERATION = "--max-len-a 0 --max-len-b 8 --min-len 2 --num-workers 0 --required-batch-size-multiple 1".split()


def train_small(data_bin, save_dir, arch, *more):
    """``fairseq-train`` of a small model (n 40) without dropout; returns its last checkpoint."""
    lengths = [] if arch in POSITION_FREE else LENGTHS
    words = [str(data_bin), "--arch", arch, *SIZES, *lengths, *TRAINING, "--cpu", "--save-dir", str(save_dir), *more]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    # What fairseq keeps on its functions is a process's best loss; each of its commands is a process.
    for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):
        vars(function).clear()
    train.main(convert_namespace_to_omegaconf(args))
    return torch.load(save_dir / "checkpoint_last.pt", weights_only=True)


def validate_small(data_bin, path, *more):
    """``fairseq-validate`` on a checkpoint; returns what it prints."""
    words = [str(data_bin), "--task", "translation", "--path", str(path), "--cpu", "--num-workers", "0", *more]
    words += ["--required-batch-size-multiple", "1", "--log-format", "json", "--no-progress-bar"]
    parser = options.get_validation_parser()
    args = options.parse_args_and_arch(parser, words)
    given = options.parse_args_and_arch(options.get_validation_parser(), words, suppress_defaults=True)
    printed, printer = logging.Handler(), logging.getLogger(progress_bar.__name__)
    lines = []
    printed.emit = lambda record: lines.append(record.getMessage())
    level = printer.level
    printer.addHandler(printed)
    printer.setLevel(logging.INFO)
    try:
        validate.main(convert_namespace_to_omegaconf(args), override_args=given)
    finally:
        printer.removeHandler(printed)
        printer.setLevel(level)
    return json.loads(lines[-1])


def generate_small(data_bin, path, output, *more):
    """``fairseq-generate`` of short hypotheses on a CPU; returns ``hypotheses_of`` what it wrote."""
    words = [str(data_bin), "--path", str(path), "--cpu", "--results-path", str(output), *GENERATION, *more]
    args = options.parse_args_and_arch(options.get_generation_parser(), words)
    generate.main(args)
    (written,) = output.glob("generate-*.txt")
    return hypotheses_of(written.read_text(encoding="utf-8"))


def interact(data_bin, path, text, *more):
    """``fairseq-interactive`` on the lines of a file; its output goes to stdout."""
    words = [str(data_bin), "--path", str(path), "--cpu", "--input", str(text), *GENERATION, *more]
    interactive.main(options.parse_args_and_arch(options.get_interactive_generation_parser(), words))


def hypotheses_of(text):
    """Sentence number -> its hypotheses: ``tokens`` (a list of words), ``score`` and ``scores`` (natural logarithms),
    ``alignment`` (its pairs or rows as printed, or None).
    """
    found = defaultdict(list)
    for line in text.splitlines():
        kind = re.match(r"([HPA])-(\d+)\t(.*)", line)
        if kind is None:
            continue
        letter, number, rest = kind.group(1), int(kind.group(2)), kind.group(3)
        if letter == "H":
            score, words = rest.split("\t")
            found[number].append(SimpleNamespace(score=base_e(score), tokens=words.split(), alignment=None))
        elif letter == "P":
            found[number][-1].scores = [base_e(score) for score in rest.split()]
        else:
            found[number][-1].alignment = rest.split()
    return dict(found)


def base_e(score):
    """fairseq prints logarithms to base 2."""
    return float(score) * torch.tensor(2.0).log().item()
