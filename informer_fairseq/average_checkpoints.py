"""Averages the weights of several checkpoints of one model.

``python -m informer_fairseq.average_checkpoints --inputs CKPT [CKPT ...] --output FILE``

fairseq keeps such a script beside its package, where an installation from PyPI does not find it; this one reads without
running code from a checkpoint, refuses models that do not match, and writes the whole file or none.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch

from informer_fairseq import compat
from informer_fairseq.checkpoint_files import save_whole
from informer_fairseq.errors import InputError


def average(paths: Sequence[str]) -> Dict[str, Any]:
    """Averages the ``model`` entries of checkpoints.

    Floating-point weights are summed in float64; integers, versions and anything else must be equal everywhere. Weights
    that share memory in the checkpoints (tied embeddings, shared projections) share it in the result.

    Args:
        paths: checkpoint files of one architecture.

    Returns:
        The first checkpoint's contents with averaged weights and without optimizer state.

    Raises:
        InputError: a file cannot be read, holds no model, or differs from the first in names, shapes or integers.
    """
    compat.allow_checkpoint_classes()
    first = _read(paths[0])
    sums: Dict[str, torch.Tensor] = {}
    names_by_memory: Dict[Any, str] = {}
    tied: Dict[str, str] = {}
    for name, value in first["model"].items():
        memory = (value.untyped_storage().data_ptr(), value.storage_offset(), value.shape, value.stride())
        tied[name] = names_by_memory.setdefault(memory, name) if value.numel() else name
        if tied[name] == name:
            sums[name] = value.double() if _is_averaged(name, value) else value.clone()
    for path in paths[1:]:
        model = _read(path)["model"]
        for name in _add_scales(first["model"], model):
            sums[name], tied[name] = first["model"][name].clone(), name
        _add_scales(model, first["model"])
        _check_match(paths[0], first["model"], path, model)
        for name, total in sums.items():
            if _is_averaged(name, total):
                total += model[name].double()
            elif not torch.equal(total, model[name]):
                values = f"{name} is {model[name].tolist()} in {path} but {total.tolist()} in {paths[0]}"
                raise InputError(f"{values}; average checkpoints of one training run")
    dtypes = {name: value.dtype for name, value in first["model"].items()}
    means = {n: (s / len(paths)).to(dtypes[n]) if _is_averaged(n, s) else s for n, s in sums.items()}
    first["model"] = {name: means[source] for name, source in tied.items()}
    first["last_optimizer_state"] = None
    return first


def main(argv: Optional[Sequence[str]] = None) -> None:
    """The command-line tool."""
    parser = argparse.ArgumentParser(
        prog="python -m informer_fairseq.average_checkpoints", description="Average the weights of checkpoints."
    )
    parser.add_argument("--inputs", nargs="+", required=True, metavar="CKPT", help="checkpoint files of one model")
    parser.add_argument("--output", required=True, metavar="FILE", help="where the averaged checkpoint goes")
    args = parser.parse_args(argv)
    if os.path.isdir(args.output):
        parser.exit(2, f"{parser.prog}: error: --output {args.output} is a folder: give a file\n")
    try:
        averaged = average(args.inputs)
        Path(args.output).parent.mkdir(parents=True, exist_ok=True)
        save_whole(averaged, args.output)
    except (InputError, OSError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    print(f"averaged {len(args.inputs)} checkpoints into {args.output}", file=sys.stderr)


def _read(path: str) -> Dict[str, Any]:
    if not os.path.isfile(path):
        raise InputError(f"no such checkpoint: {path}")
    state = compat.read_checkpoint(path)
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise InputError(f"{path} is no fairseq checkpoint: it has no 'model' entry")
    return state


def _is_averaged(name: str, value: torch.Tensor) -> bool:
    return value.is_floating_point() and "version" not in name.rpartition(".")[2]


def _add_scales(model: Dict[str, torch.Tensor], other: Dict[str, torch.Tensor]) -> List[str]:
    """Gives a model from before the scales of layer compositions those that the other one has; returns their names."""
    missing = [name for name in other.keys() - model.keys() if name.endswith(".scale_version")]
    model.update({name: torch.ones_like(other[name]) for name in missing})
    return missing


def _check_match(first_path: str, first: Dict[str, Any], path: str, other: Dict[str, Any]) -> None:
    differing: List[str] = sorted(first.keys() ^ other.keys())
    differing += [name for name in first.keys() & other.keys() if first[name].shape != other[name].shape]
    if differing:
        raise InputError(
            f"{path} does not match {first_path}: {differing[0]} and {len(differing) - 1} more names or shapes differ; "
            "average checkpoints of one training run"
        )


if __name__ == "__main__":
    main()
