"""``--init-from-transformer``: start a model from a checkpoint of fairseq's Transformer."""

import logging
import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, cast

import torch
import torch.nn as nn
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, data_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import DEFAULT_MAX_SOURCE_POSITIONS, TransformerModel, base_architecture
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from informer_fairseq.attention import HeadAggregation, HeadInteraction
from informer_fairseq.checkpoints import check_embeddings, dictionary_fingerprints
from informer_fairseq.compositions.bilinear_pooling import LowRankBilinearPooling, start_from_linear
from informer_fairseq.compositions.linear import LinearCombination
from informer_fairseq.errors import InputError

logger = logging.getLogger(__name__)

TAKEN, BECAME, FRESH = "taken over", "set from the checkpoint's", "starts fresh"

# What must agree for the checkpoint's weights to mean the same here.
_SAME_FLAGS = (
    *(
        f"{side}_{name}"
        for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before", "learned_pos")
        for side in ("encoder", "decoder")
    ),
    "activation_fn",
    "no_token_positional_embeddings",
    "no_scale_embedding",
    "layernorm_embedding",
    "no_decoder_final_norm",
    "no_cross_attention",
    "cross_self_attention",
    "decoder_input_dim",
    "decoder_output_dim",
    "adaptive_input",
    "adaptive_softmax_cutoff",
)


@dataclass
class Part:
    """One row of the table: parameters of one kind, over all layers.

    Attributes:
        name: the parameters' name, with * for the layers' numbers.
        start: how they start.
        count: how many numbers they are.
    """

    name: str
    start: str
    count: int


def start_from_transformer(model: nn.Module, args: Namespace, task: Any) -> List[Part]:
    """Takes over what fits from the Transformer in ``args.init_from_transformer`` and logs what starts how.

    The function of the checkpoint is preserved exactly where encoder and decoder are the stock ones up to compositions
    that can hold a linear map: linear, or bilinear with first-order terms and a rank of at least the width. Then heads
    start with ``U = W_O, u = b_O`` and layers with a U that picks the top layer, both with ``V = 0, v = 1, P = I``.

    Args:
        model: one of ours, built from ``args``.
        args: flags with the architecture's defaults filled in.
        task: fairseq's task; its dictionaries are compared with the checkpoint's.

    Returns:
        The rows of the table.

    Raises:
        InputError: the file is no checkpoint of fairseq's ``transformer``, or has other sizes or dictionaries.
    """
    path = args.init_from_transformer
    stock = load_transformer(path, args, task)
    starts = take_over(model, stock)
    parts = _collect(model, starts)
    differences = _why_not_preserved(model, args)
    outcome = (
        "its function is preserved exactly" if not differences else "its function changes: " + ", ".join(differences)
    )
    logger.info(f"started from {path}; {outcome}\n{format_table(parts)}")
    return parts


def load_transformer(path: str, args: Namespace, task: Any) -> TransformerModel:
    """Reads a checkpoint of fairseq's ``transformer`` and builds that model, after checks (Raises InputError)."""
    if not Path(path).is_file():
        found = "is a folder" if Path(path).is_dir() else "is no file that exists"
        raise InputError(
            f"--init-from-transformer {path} {found}: give a checkpoint of fairseq's transformer, or, to go on with a "
            "run that has checkpoints of its own, drop the flag"
        )
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(path)
        flags = _model_flags(state)
        weights = state["model"]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(
            f"--init-from-transformer {path} lacks what a fairseq checkpoint holds ({type(error).__name__}: {error}): "
            "give a checkpoint of fairseq's transformer"
        ) from error
    arch = getattr(flags, "arch", None) or getattr(flags, "_name", None)
    if arch is not None and ARCH_MODEL_REGISTRY.get(arch) is not TransformerModel:
        raise InputError(
            f"--init-from-transformer {path} is a checkpoint of {arch}, not of fairseq's transformer: give one of that"
        )
    base_architecture(flags)
    _check_flags(path, flags, args)
    check_embeddings({"source": len(task.source_dictionary), "target": len(task.target_dictionary)}, weights, path)
    _check_words(path, state, task)

    flags.encoder_embed_path = flags.decoder_embed_path = None
    flags.checkpoint_activations = flags.offload_activations = False
    stock = TransformerModel.build_model(flags, task)
    try:
        stock.load_state_dict(weights, strict=True)
    except (RuntimeError, KeyError) as error:  # fairseq 0.12.2's loader looks weights up by their names
        raise InputError(
            f"--init-from-transformer {path} holds weights that do not fit its own flags: "
            f"{' '.join(str(error).split())[:200]}"
        ) from error
    return stock


def _model_flags(state: Dict[str, Any]) -> Namespace:
    """The model's flags as a Namespace of its own, from either of fairseq's formats."""
    flags: Any = state["cfg"]["model"] if state.get("cfg") is not None else state["args"]
    if isinstance(flags, DictConfig):
        flags = OmegaConf.to_container(flags, resolve=True)
    return Namespace(**cast(Dict[str, Any], flags if isinstance(flags, dict) else vars(flags)))


def _check_flags(path: str, flags: Namespace, args: Namespace) -> None:
    skipped = set()
    if args.encoder_channel_mixer != "feed-forward":
        skipped.add("encoder_ffn_embed_dim")
    for name in _SAME_FLAGS:
        theirs, ours = getattr(flags, name, None), getattr(args, name, None)
        if name not in skipped and (theirs or None) != (ours or None):
            raise InputError(
                f"--{name.replace('_', '-')} is {theirs} in --init-from-transformer {path} and {ours} here: give the "
                "same, or another checkpoint"
            )
    if not _tied(flags) and _tied(args):
        raise InputError(
            f"--init-from-transformer {path} has an output projection of its own, and "
            "--share-decoder-input-output-embed or --share-all-embeddings has none: drop it, or give a checkpoint that "
            "shares"
        )
    if args.share_all_embeddings and not flags.share_all_embeddings:
        raise InputError(
            f"--init-from-transformer {path} has two embeddings, and --share-all-embeddings one: drop it, or give a "
            "checkpoint that shares"
        )
    for side in ("source", "target"):
        name = f"max_{side}_positions"
        learned = getattr(args, f"{'encoder' if side == 'source' else 'decoder'}_learned_pos")
        theirs, ours = (getattr(given, name, None) or DEFAULT_MAX_SOURCE_POSITIONS for given in (flags, args))
        if learned and theirs != ours:
            raise InputError(
                f"--max-{side}-positions is {theirs} in --init-from-transformer {path} and {ours} here, and positions "
                "are learned: give the same"
            )


def _tied(flags: Namespace) -> bool:
    return bool(flags.share_decoder_input_output_embed or flags.share_all_embeddings)


def _check_words(path: str, state: Dict[str, Any], task: Any) -> None:
    """Compares the words of both dictionaries where the data that the checkpoint was trained on is still there."""
    flags = (state.get("cfg") or {}).get("task") or state.get("args")
    data = getattr(flags, "data", None)
    if not isinstance(data, str):
        return
    folder = Path(data.split(":")[0])
    languages = [getattr(flags, name, None) for name in ("source_lang", "target_lang")]
    if None in languages and folder.is_dir():
        languages = list(data_utils.infer_language_pair(str(folder)))
    files = [folder / f"dict.{language}.txt" for language in languages]
    if not all(file.is_file() for file in files):
        logger.info(f"no dictionaries in {folder}: the checkpoint's are compared by their sizes alone")
        return
    theirs = dictionary_fingerprints(*(Dictionary.load(str(file)) for file in files)).tolist()
    ours = dictionary_fingerprints(task.source_dictionary, task.target_dictionary).tolist()
    for number, side in enumerate(("source", "target")):
        if theirs[number] != ours[number]:
            if not folder.is_absolute():
                # Relative to the folder of that training, which need not be this one.
                logger.warning(
                    f"{files[number]}, if it is the {side} dictionary of {path}, has other words, or another order, "
                    "than the data's"
                )
                continue
            raise InputError(
                f"the {side} dictionary of --init-from-transformer {path} ({files[number]}) has other words, or "
                "another order, than the data's of the same size: use the data-bin it was trained on, or binarize with "
                "its dict files"
            )


@torch.no_grad()
def take_over(model: nn.Module, stock: nn.Module) -> Dict[str, str]:
    """Copies what fits from a stock Transformer of the same sizes.

    Returns:
        For each of the model's parameters, by name, how it starts.
    """
    weights = stock.state_dict()
    starts: Dict[str, str] = {}
    for prefix, attention in _composed_attentions(model):
        _take_over_heads(attention, weights, prefix, starts)
    for side in ("encoder", "decoder"):
        composition = getattr(getattr(model, side), "layer_composition", None)
        if composition is not None:
            start = BECAME + " top layer" if _take_over_layers(composition, _readers(stock, side)) else FRESH
            starts.update({f"{side}.layer_composition.{name}": start for name, _ in composition.named_parameters()})
    for name, parameter in model.named_parameters():
        if name in starts:
            continue
        if name in weights and weights[name].shape == parameter.shape:
            parameter.copy_(weights[name])
            starts[name] = TAKEN
        else:
            starts[name] = FRESH
    return starts


def _composed_attentions(model: nn.Module) -> List[Tuple[str, Any]]:
    found = []
    for name, module in model.named_modules():
        if isinstance(getattr(module, "head_composition", None), nn.Module):
            found.append((name, module))
    return found


def _take_over_heads(attention: Any, weights: Dict[str, Tensor], prefix: str, starts: Dict[str, str]) -> None:
    """Gives one attention's composition the checkpoint's output projection, where it can hold it."""
    composition: Any = attention.head_composition
    became = BECAME + " output projection"
    own = {f"{prefix}.out_proj.{name}": FRESH for name, _ in attention.out_proj.named_parameters()}
    own.update({f"{prefix}.head_composition.{name}": FRESH for name, _ in composition.named_parameters()})
    weight, bias = weights[f"{prefix}.out_proj.weight"], weights[f"{prefix}.out_proj.bias"]
    if isinstance(composition, HeadAggregation):
        composition.lift.weight.copy_(weight)
        own[f"{prefix}.head_composition.lift.weight"] = became
    elif isinstance(composition, HeadInteraction):
        pool = composition.interaction.pool
        kept = composition.output_projection
        if kept is not None:
            kept.weight.copy_(weight)
            kept.bias.copy_(bias)
            own.update({name: became for name in own if ".output_projection." in name})
        if attention.out_proj.bias is not None:
            if kept is None:
                start_from_linear(attention.out_proj, pool, weight, bias)
            else:
                start_from_linear(attention.out_proj, pool, _best_projector([weight], pool.in_features))
            own = dict.fromkeys(own, became)
    starts.update(own)


def _take_over_layers(composition: nn.Module, readers: List[Tensor]) -> bool:
    """Lets a layer composition start as its top layer; False where it cannot."""
    if isinstance(composition, LinearCombination):
        composition.select_last()
        return True
    if not isinstance(composition, LowRankBilinearPooling) or not composition.first_order:
        return False
    width = composition.input_dim
    weight = torch.zeros(width, composition.factors.in_features)
    weight[:, -width:] = _best_projector(readers, composition.rank, width)
    composition.start_from_linear(weight)
    return True


def _readers(stock: Any, side: str) -> List[Tensor]:
    """The matrices that read what a side returns; each has its width as columns."""
    if side == "encoder":
        attentions = [layer.encoder_attn for layer in stock.decoder.layers if layer.encoder_attn is not None]
        return [part.weight for attention in attentions for part in (attention.k_proj, attention.v_proj)]
    if stock.decoder.project_out_dim is not None:
        return [stock.decoder.project_out_dim.weight]
    return [] if stock.decoder.output_projection is None else [stock.decoder.output_projection.weight]


def _best_projector(readers: List[Tensor], rank: int, width: Optional[int] = None) -> Tensor:
    """The projector of rank r that the products with all ``readers`` lose least by: the identity where r >= width."""
    width = readers[0].size(1) if width is None else width
    if rank >= width:
        return torch.eye(width)
    squares = torch.zeros(width, width, dtype=torch.float64)
    for reader in readers:
        squares += reader.double().t() @ reader.double()
    leading = torch.linalg.eigh(squares)[1][:, -rank:]  # eigenvalues ascend
    return (leading @ leading.t()).float()


def _why_not_preserved(model: nn.Module, args: Namespace) -> List[str]:
    reasons = []
    if args.encoder_token_mixer != "full":
        reasons.append(f"--encoder-token-mixer {args.encoder_token_mixer}")
    if args.encoder_channel_mixer != "feed-forward":
        reasons.append(f"--encoder-channel-mixer {args.encoder_channel_mixer}")
    elif args.encoder_activation_fn != args.activation_fn:
        reasons.append(f"--encoder-activation-fn {args.encoder_activation_fn} instead of {args.activation_fn}")
    for name in ("encoder_layer_composition", "decoder_layer_composition", "head_composition"):
        value = getattr(args, name)
        if value == "hierarchical" or (value == "bilinear" and args.composition_second_order_only):
            reasons.append(f"--{name.replace('_', '-')} {value}, which holds no linear map")
    if args.init_with_low_rank_approximation:
        reasons.append(f"--composition-rank {args.composition_rank} approximates")
    return reasons


def _collect(model: nn.Module, starts: Dict[str, str]) -> List[Part]:
    parts: Dict[Tuple[str, str], Part] = {}
    for name, parameter in model.named_parameters():
        key = (re.sub(r"\.\d+\.", ".*.", name), starts[name])
        part = parts.setdefault(key, Part(*key, 0))
        part.count += parameter.numel()
    return list(parts.values())


def format_table(parts: List[Part]) -> str:
    """One line a part: name, numbers, how it starts; the sums last."""
    rows = [(part.name, f"{part.count:,}", part.start) for part in parts]
    for start in dict.fromkeys(part.start for part in parts):
        rows.append(("total", f"{sum(part.count for part in parts if part.start == start):,}", start))
    name_width, count_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"  {name:<{name_width}}  {count:>{count_width}}  {start}" for name, count, start in rows)
