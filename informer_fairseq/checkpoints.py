"""What does not fit between a checkpoint and a model, told in one line."""

import hashlib
from typing import Any, Dict, Optional

import torch
import torch.nn as nn

from informer_fairseq.errors import InputError

_EMBEDDINGS = {
    "encoder.embed_tokens.weight": "source",
    "decoder.embed_tokens.weight": "target",
    "decoder.output_projection.weight": "target",
}


def check_state_dict(model: nn.Module, state_dict: Dict[str, torch.Tensor]) -> None:
    """Compares a checkpoint's weights with the model's before they are loaded.

    Missing and unexpected names are left to ``load_state_dict``, which upgrades old names first.

    Raises:
        InputError: dictionaries of another size, another n, r or pool, or any other shape that differs.
    """
    own = model.state_dict()
    check_embeddings({side: own[name].size(0) for name, side in _EMBEDDINGS.items() if name in own}, state_dict)
    _check_parts(own, state_dict)
    _check_fingerprints(own.get("dictionary_version"), state_dict.get("dictionary_version"))
    _check_lengths(own.get("encoder.length_version"), state_dict.get("encoder.length_version"))
    differing = [name for name in own if name in state_dict and own[name].shape != state_dict[name].shape]
    if differing:
        name = differing[0]
        others = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise InputError(
            f"the checkpoint's {name} is {_shape(state_dict[name])}, this model's is {_shape(own[name])}{others}: "
            "build the model with the flags the checkpoint was trained with"
        )


def check_embeddings(sizes: Dict[str, int], state_dict: Dict[str, torch.Tensor], path: str = "") -> None:
    """Compares a checkpoint's embeddings with the sizes of the data's dictionaries.

    Args:
        sizes: number of types of the ``source`` and the ``target`` dictionary.
        state_dict: the checkpoint's weights.
        path: the checkpoint's file, for the message.

    Raises:
        InputError: they differ.
    """
    for name, side in _EMBEDDINGS.items():
        if name in state_dict and sizes.get(side, 0) != state_dict[name].size(0):
            where = f"{path}: " if path else ""
            raise InputError(
                f"{where}the checkpoint's {side} dictionary has {state_dict[name].size(0)} types, the data's has "
                f"{sizes[side]}: use the data-bin it was trained on, or binarize with its dict files"
            )


def _check_parts(own: Dict[str, torch.Tensor], state_dict: Dict[str, torch.Tensor]) -> None:
    """Tells other mixers and compositions by what the first layers and the layer compositions hold."""
    for first in ("encoder.layers.0.", "decoder.layers.0.", "encoder.layer_composition.", "decoder.layer_composition."):
        ours, theirs = (
            # Scales came later than the compositions: without one, s is 1 (ScaledConcatenation).
            {name for name in names if name.startswith(first) and not name.endswith(".scale_version")}
            for names in (own, state_dict)
        )
        if first.endswith("layers.0.") and not theirs:
            continue
        if ours != theirs and not any("layer_norms" in name or "in_proj" in name for name in theirs):
            only_theirs = ", ".join(sorted(name[len(first) :] for name in theirs - ours)) or "nothing"
            only_ours = ", ".join(sorted(name[len(first) :] for name in ours - theirs)) or "nothing"
            what = first.replace(".layers.0.", " layers").replace(".layer_composition.", "'s layer composition")
            raise InputError(
                f"the checkpoint's {what} hold {only_theirs}, which this model's lack, and lack {only_ours}: "
                "build the model with the --arch, mixer, sharing and composition flags that the checkpoint was trained "
                "with (or take over what fits from a stock transformer with --init-from-transformer)"
            )


def dictionary_fingerprints(source: Any, target: Any) -> torch.Tensor:
    """One integer for each of two fairseq dictionaries, from their words in order; counts do not matter."""
    digests = [hashlib.sha256("\n".join(words.symbols).encode("utf-8")).digest() for words in (source, target)]
    return torch.tensor([int.from_bytes(digest[:8], "big", signed=True) for digest in digests])


def _check_fingerprints(own: Optional[torch.Tensor], loaded: Optional[torch.Tensor]) -> None:
    """Dictionaries of equal size with other words, or another order, would give fluent nonsense."""
    if own is None or loaded is None:
        return
    for side, ours, theirs in zip(("source", "target"), own.tolist(), loaded.tolist()):
        if ours != theirs:
            raise InputError(
                f"the checkpoint's {side} dictionary has other words, or another order, than the data's of the same "
                "size: use the data-bin it was trained on, or binarize with its dict files"
            )


def _check_lengths(own: Optional[torch.Tensor], loaded: Optional[torch.Tensor]) -> None:
    if own is None or loaded is None or own.tolist() == loaded.tolist():
        return
    names = ("--encoder-fixed-length", "--encoder-reduced-length", "--encoder-pool-size")
    pairs = zip(names, loaded.tolist(), own.tolist())
    differing = ", ".join(f"{name} {theirs}, not {ours}" for name, theirs, ours in pairs if theirs != ours)
    raise InputError(
        f"the checkpoint was trained with {differing}: its weights belong to those positions; keep its value, or train "
        "a new model"
    )


def _shape(tensor: Any) -> str:
    return " x ".join(str(size) for size in tensor.shape) or "a scalar"
