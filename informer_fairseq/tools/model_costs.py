"""Models without data: built from flags or from a checkpoint's, their parameters by part, their encoder's cost."""

import contextlib
import difflib
import io
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import torch
import torch.nn as nn
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel, build_model
from omegaconf import OmegaConf
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import informer_fairseq  # noqa: F401  (registers the architectures)
from informer_fairseq.compat import read_checkpoint
from informer_fairseq.errors import InputError

PARTS = (
    "embeddings",
    "encoder attention",
    "projection",
    "channel mixer",
    "composition",
    "encoder, other",
    "decoder",
    "output",
)
_OUTPUT = ("decoder.output_projection.", "decoder.adaptive_softmax.")
_CHANNEL_MIXER = ("channel_mixer", "fc1", "fc2", "final_layer_norm", "ffn_layernorm", "w_resid")


def build_from_flags(arch: str, flags: Sequence[str], source_types: int, target_types: int) -> nn.Module:
    """Builds the model that fairseq-train would build, over dictionaries of made-up words.

    Args:
        arch: a registered architecture with encoder and decoder.
        flags: further flags of fairseq-train.
        source_types: words of the source dictionary, special symbols included.
        target_types: the same of the target dictionary; equal to ``source_types`` where the flags share all embeddings.

    Raises:
        InputError: the architecture or a flag is unknown, or values do not fit together.
    """
    _check_arch(arch)
    parser = options.get_training_parser()
    args = _parse(parser, ["no-data", "--arch", arch, *flags], arch)
    joined = bool(getattr(args, "share_all_embeddings", False))
    if joined and source_types != target_types:
        raise InputError(
            f"--share-all-embeddings needs one joint dictionary, but there are {source_types:,} source and "
            f"{target_types:,} target types: give both the joint size, --source-types N --target-types N"
        )
    task = _stand_in_task(source_types, target_types, joined)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def build_from_checkpoint(path: str) -> nn.Module:
    """Builds the model of a checkpoint from the flags and the dictionary sizes that it records.

    The weights are not loaded, but their names and shapes are held against the model's.

    Raises:
        InputError: the file is no fairseq checkpoint of an encoder-decoder, or the built model differs from it.
    """
    if not Path(path).is_file():
        raise InputError(f"{path} is a folder: give a file" if Path(path).is_dir() else f"no such checkpoint: {path}")
    state = read_checkpoint(path)
    flags = (state.get("args") or (state.get("cfg") or {}).get("model")) if isinstance(state, dict) else None
    if flags is None or not isinstance(state.get("model"), dict):
        raise InputError(f"{path} is no fairseq checkpoint: it lacks the weights ('model') or the flags ('cfg')")
    weights, cfg = state["model"], OmegaConf.create(flags) if isinstance(flags, dict) else flags
    sizes = [weights.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder")]
    if any(size is None for size in sizes):
        raise InputError(f"{path} is no model with encoder and decoder over words: it lacks their embeddings")
    joined = bool(getattr(cfg, "share_all_embeddings", False))
    model = build_model(cfg, _stand_in_task(sizes[0].size(0), sizes[1].size(0), joined))
    model.upgrade_state_dict(weights)  # names of earlier versions
    for name, parameter in model.named_parameters():
        if name not in weights or weights[name].shape != parameter.shape:
            found = tuple(weights[name].shape) if name in weights else "missing"
            raise InputError(
                f"{path}: {name} is {found} there, {tuple(parameter.shape)} in the model built from its flags: it was "
                "written by another version of fairseq or of this plugin"
            )
    return model


def count_parameters(model: nn.Module) -> Dict[str, int]:
    """Numbers of parameters: ``total``, ``trainable``, and of every part of :data:`PARTS`, which sum up to the total.

    Shared weights count once, where the model holds them first: a target embedding that is also the output projection
    is an embedding, a projection over positions shared by all layers is a projection. Norms belong to what they follow
    or precede. What composes heads counts as composition on both sides, W_O's successor included.
    """
    names = dict(model.named_parameters())
    composed = {name.split(".head_composition.")[0] + "." for name in names if ".head_composition." in name}
    counts = {"total": 0, "trainable": 0, **dict.fromkeys(PARTS, 0)}
    for name, parameter in names.items():
        composes = any(name.startswith((f"{place}head_composition.", f"{place}out_proj.")) for place in composed)
        part = "composition" if composes else part_of(name)
        for key in ("total", part):
            counts[key] += parameter.numel()
        counts["trainable"] += parameter.numel() if parameter.requires_grad else 0
    return counts


def part_of(name: str) -> str:
    """The part of :data:`PARTS` that a parameter belongs to, by its name; the composition of heads apart."""
    words = name.split(".")
    if any(word.startswith(("embed_", "layernorm_embedding")) for word in words):
        return "embeddings"
    if name.startswith(_OUTPUT):
        return "output"
    if "layer_composition" in words:
        return "composition"
    if words[0] == "decoder":
        return "decoder"
    if "projection" in words or "value_projection" in words:
        return "projection"
    if any(word.startswith("self_attn") for word in words):
        return "encoder attention"
    # The norm behind the last layer of a pre-norm encoder follows a channel mixer.
    if any(word in _CHANNEL_MIXER for word in words) or name.startswith("encoder.layer_norm."):
        return "channel mixer"
    return "encoder, other"


def encoder_multiply_adds(model: Any, length: int) -> float:
    """Multiply-adds of one forward pass of the encoder over sentences of one length, per source token.

    Attention runs as plain products here: torch does not count its fused kernels. Nor does it count products of a
    matrix and a vector, so there is more than one sentence. Look-ups, norms and activations are not counted.

    Args:
        model: an encoder-decoder model of fairseq.
        length: source tokens T, ``</s>`` included.

    Raises:
        InputError: T exceeds what the encoder takes.
    """
    limit = model.encoder.max_positions()
    if not 0 < length <= limit:
        raise InputError(f"--length {length} is not in 1 to {limit}, which this encoder takes: choose another length")
    words = model.encoder.dictionary
    sentences = 3
    tokens = torch.full((sentences, length), words.unk())
    tokens[:, -1] = words.eos()
    model.eval()
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model.encoder(tokens, torch.full((sentences,), length))
    return counter.get_total_flops() / 2 / (sentences * length)


def _check_arch(arch: str) -> None:
    known = {name: kind for name, kind in ARCH_MODEL_REGISTRY.items() if issubclass(kind, FairseqEncoderDecoderModel)}
    if arch not in known:
        near = difflib.get_close_matches(arch, known, n=3)
        advice = f"did you mean {' or '.join(near)}" if near else "fairseq-train --help lists them under --arch"
        raise InputError(f"--arch {arch} is no architecture with encoder and decoder: {advice}")


def _parse(parser: ArgumentParser, words: List[str], arch: str) -> Any:
    """fairseq's own parsing; it prints pages of usage on an error and ends the program, where one line will do."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return options.parse_args_and_arch(parser, words)
    except SystemExit:
        lines = said.getvalue().strip().splitlines() or ["the flags were refused"]
        reason = lines[-1].partition("error: ")[2] or lines[-1]
        raise InputError(
            f"{arch}: {reason}; give flags of one architecture with it: --arch '{arch} --flag value'"
        ) from None


def _stand_in_task(source_types: int, target_types: int, joined: bool) -> Any:
    """What a model needs of fairseq's translation task."""
    source = _dictionary(source_types)
    target = source if joined else _dictionary(target_types)
    return SimpleNamespace(
        source_dictionary=source, target_dictionary=target, datasets={}, load_dataset=lambda *_: None
    )


def _dictionary(types: int) -> Dictionary:
    words = Dictionary()
    if types < len(words):
        raise InputError(f"{types} types are fewer than the {len(words)} special symbols of every dictionary")
    for number in range(types - len(words)):
        words.add_symbol(f"w{number}")
    return words
