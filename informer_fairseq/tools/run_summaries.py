"""What is worth keeping of one run of a recipe: settings, commit, versions, training losses, validations.

Another run of the same code, seed, machine, versions and number of threads gives the same losses to the last digit.
"""

import argparse
import re
from typing import Any, Dict

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import read_lines
from informer_fairseq.tools.training_logs import read_number, read_validations

_TRAINED = re.compile(r"epoch (\d+) \| loss (\S+) \| nll_loss (\S+) .*num_updates (\d+)")
_LOGGED = re.compile(r"epoch \d+:.* loss=(\S+?), .*num_updates=(\d+)")
_PARAMETERS = re.compile(r"num\. (?:shared )?model params: ([\d,]+)")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that :func:`describe` reads."""
    for name, text in (
        ("system", "the run's name in tables"),
        ("settings", "NAME=VALUE words, as the recipe takes them"),
        ("flags", "fairseq-train's, that choose the system"),
        ("log", "of fairseq-train, with --log-format simple"),
        ("environment", "file with commit, versions and hardware: a line for each that trained"),
    ):
        parser.add_argument(f"--{name}", required=True, help=text)
    parser.add_argument("--seed", required=True, type=int)


def describe(args: argparse.Namespace) -> Dict[str, Any]:
    """The summary, without scores.

    Raises:
        InputError: a file is missing, or the log has no perplexity of a validation, or no number of parameters.
    """
    summary: Dict[str, Any] = {name: getattr(args, name) for name in ("system", "seed", "settings", "flags")}
    summary["environment"] = read_lines(args.environment)
    summary.update(read_training(args.log))
    perplexities = [epoch["valid_perplexity"] for epoch in summary["epochs"] if epoch.get("valid_perplexity")]
    if not perplexities:
        raise InputError(f"{args.log} has validations without perplexity: train with a cross-entropy criterion")
    summary["best_valid_perplexity"] = min(perplexities)
    return summary


def read_training(path: str) -> Dict[str, Any]:
    """What fairseq logged.

    Returns:
        ``parameters``; ``losses``, in bits a token by the number of updates, each the mean since the one before; and
        ``epochs`` with each one's number, ``updates``, mean ``loss`` and ``nll_loss``, and ``valid_perplexity``.
        A loss that was not finite is None.

    Raises:
        InputError: the file is missing, or has no number of parameters, or no validation.
    """
    lines = read_lines(path)
    parameters = [match[1] for line in lines if (match := _PARAMETERS.search(line))]
    if not parameters:
        raise InputError(f"{path} does not tell the number of parameters: no whole log of fairseq-train; train again")
    epochs: Dict[int, Dict[str, Any]] = {}
    for match in filter(None, map(_TRAINED.search, lines)):
        losses = {"loss": read_number(match[2]), "nll_loss": read_number(match[3])}
        epochs[int(match[1])] = {"updates": int(match[4]), **losses}
    for validation in read_validations([path], "valid"):
        epochs.setdefault(validation.epoch, {})["valid_perplexity"] = validation.perplexity
    return {
        "parameters": int(parameters[0].replace(",", "")),
        "losses": {match[2]: read_number(match[1]) for match in filter(None, map(_LOGGED.search, lines))},
        "epochs": [{"epoch": epoch, **values} for epoch, values in sorted(epochs.items())],
    }
