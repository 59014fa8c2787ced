"""The compositions' flags: one dataclass for names, types and help, defaults, checks across fields."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import List, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from informer_fairseq.config import as_given, check_choice, set_default
from informer_fairseq.errors import InputError

LAYER_COMPOSITIONS = ("top", "linear", "hierarchical", "bilinear")
HEAD_COMPOSITIONS = ("linear", "hierarchical", "bilinear")
COMPOSITION_STARTS = ("transformer", "plain")


@dataclass
class CompositionConfig(FairseqDataclass):
    """Flags of layer and head composition. Defaults are set by :func:`set_composition_defaults`."""

    encoder_layer_composition: Optional[ChoiceEnum(LAYER_COMPOSITIONS)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "what the encoder returns: its top layer (top), or all its layers' outputs composed by a linear "
            "combination, by hierarchical aggregation or by low-rank bilinear pooling; default: the architecture's"
        },
    )
    decoder_layer_composition: Optional[ChoiceEnum(LAYER_COMPOSITIONS)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={"help": "the same for the decoder; default: the architecture's"},
    )
    head_composition: Optional[ChoiceEnum(HEAD_COMPOSITIONS)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "how the heads of every attention become one vector: linear (the output projection of any "
            "Transformer), hierarchical, or bilinear; default: the architecture's"
        },
    )
    composition_rank: Optional[int] = field(
        default=None,
        metadata={"help": "r, the number of products in bilinear compositions; default: the model's width"},
    )
    composition_second_order_only: bool = field(
        default=False,
        metadata={"help": "bilinear compositions without first-order terms (the paper's ablation)"},
    )
    head_composition_keep_output_projection: bool = field(
        default=False,
        metadata={"help": "bilinear heads: keep the output projection W_O behind the pooling (the paper's counts)"},
    )
    composition_start: Optional[ChoiceEnum(COMPOSITION_STARTS)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "initialisation of linear and bilinear compositions: near the plain Transformer, the layers' "
            "outputs divided by their number, rounded up to a power of two (transformer, the default), or Xavier for "
            "every matrix and zero for every bias, the outputs as they are (plain)"
        },
    )
    init_from_transformer: Optional[str] = field(
        default=None,
        metadata={
            "help": "start from this checkpoint of fairseq's transformer, of the same sizes and dictionaries; what is "
            "taken over and what starts fresh is logged"
        },
    )
    init_with_low_rank_approximation: bool = field(
        default=False,
        metadata={
            "help": "--init-from-transformer with a --composition-rank below the width: take the best approximation of "
            "that rank instead of refusing"
        },
    )


def set_composition_defaults(args: Namespace, *, layers: str, heads: str) -> None:
    """Fills in what the user left open, in place.

    Only flags that the chosen compositions read get a value: one that is set although nothing reads it was given by the
    user, and :func:`check_composition_flags` refuses it.

    Args:
        args: parsed flags, with the architecture's sizes; an absent attribute and None both mean "not given".
        layers: the architecture's layer composition, in encoder and decoder.
        heads: the architecture's head composition.
    """
    set_default(args, "encoder_layer_composition", layers)
    set_default(args, "decoder_layer_composition", layers)
    set_default(args, "head_composition", heads)
    for switch in (
        "composition_second_order_only",
        "head_composition_keep_output_projection",
        "init_with_low_rank_approximation",
    ):
        set_default(args, switch, False)
    for name in ("init_from_transformer", "composition_rank", "composition_start"):
        set_default(args, name, None)
    if "bilinear" in _choices(args):
        set_default(args, "composition_rank", max(args.encoder_embed_dim, args.decoder_embed_dim))
    if _has_start(args):
        set_default(args, "composition_start", "transformer")


def check_composition_flags(args: Namespace) -> None:
    """Checks the compositions' flags, against each other and against fairseq's, before any data is read.

    Args:
        args: flags with the architecture's defaults filled in.

    Raises:
        InputError: a value does not fit; the message names it, the limit and the way out.
    """
    for side in ("encoder", "decoder"):
        flag = f"--{side}-layer-composition"
        check_choice(flag, getattr(args, f"{side}_layer_composition"), LAYER_COMPOSITIONS)
        if getattr(args, f"{side}_layer_composition") != "top":
            _check_layers(args, side)
    check_choice("--head-composition", args.head_composition, HEAD_COMPOSITIONS)
    _check_unread(args)
    if args.composition_rank is not None and args.composition_rank < 1:
        raise InputError(f"--composition-rank {args.composition_rank} is below 1: give a rank of 1 or more")
    if args.init_from_transformer is not None:
        _check_warm_start(args)


def _choices(args: Namespace) -> List[str]:
    return [args.encoder_layer_composition, args.decoder_layer_composition, args.head_composition]


def _has_start(args: Namespace) -> bool:
    """Whether a composition has a choice of starts: linear over layers, or bilinear anywhere."""
    layers = (args.encoder_layer_composition, args.decoder_layer_composition)
    return "bilinear" in _choices(args) or "linear" in layers


def _check_layers(args: Namespace, side: str) -> None:
    """Refuses what changes the number of layer outputs that a composition's weights are made for."""
    composition = f"--{side}-layer-composition {getattr(args, f'{side}_layer_composition')}"
    way_out = f"drop it, or use --{side}-layer-composition top"
    if getattr(args, f"{side}_layers") < 1:
        layers = getattr(args, f"{side}_layers")
        raise InputError(f"{composition} has nothing to compose with --{side}-layers {layers}: give 1 or more")
    hidden = getattr(args, f"{side}_ffn_embed_dim")
    if getattr(args, f"{side}_layer_composition") == "hierarchical" and hidden < 1:
        raise InputError(
            f"{composition} has hidden layers of width --{side}-ffn-embed-dim, which is {hidden}: give 1 or more"
        )
    for name in (f"{side}_layerdrop", f"{side}_layers_to_keep"):
        value = getattr(args, name, None)
        if value:
            raise InputError(
                f"--{name.replace('_', '-')} {value} changes the number of layers, and {composition} has weights for "
                f"each of them: {way_out}"
            )
    if side == "decoder" and (getattr(args, "base_layers", None) or 0) > 0:
        raise InputError(f"--base-layers {args.base_layers} cannot be combined with {composition}: {way_out}")


def _check_unread(args: Namespace) -> None:
    """Refuses flags that the chosen compositions would ignore."""
    bilinear = "bilinear" in _choices(args)
    unread = []
    if not bilinear:
        unread += ["composition_rank", "composition_second_order_only"]
    if args.head_composition != "bilinear":
        unread.append("head_composition_keep_output_projection")
    if not _has_start(args):
        unread.append("composition_start")
    for name in unread:
        given = as_given(args, name)
        if given is not None:
            raise InputError(
                f"{given} has no effect with --encoder-layer-composition {args.encoder_layer_composition}, "
                f"--decoder-layer-composition {args.decoder_layer_composition} and --head-composition "
                f"{args.head_composition}: drop it, or choose a composition that reads it"
            )
    if args.init_with_low_rank_approximation and args.init_from_transformer is None:
        raise InputError(
            "--init-with-low-rank-approximation has no effect without --init-from-transformer: drop it, or give a "
            "checkpoint"
        )


def _check_warm_start(args: Namespace) -> None:
    if args.composition_start == "plain":
        raise InputError(
            "--composition-start plain cannot be combined with --init-from-transformer, which sets the compositions: "
            "drop one of them"
        )
    width = max(
        args.encoder_embed_dim if "bilinear" in (args.encoder_layer_composition, args.head_composition) else 0,
        args.decoder_embed_dim if "bilinear" in (args.decoder_layer_composition, args.head_composition) else 0,
    )
    rank = args.composition_rank
    if width == 0 or args.composition_second_order_only:
        lower = False
    else:
        lower = rank < width
    if lower and not args.init_with_low_rank_approximation:
        raise InputError(
            f"--init-from-transformer needs --composition-rank {width}, the model's width, or more, not {rank}: raise "
            "it, or accept the best approximation with --init-with-low-rank-approximation"
        )
    if args.init_with_low_rank_approximation and not lower:
        raise InputError(
            "--init-with-low-rank-approximation has no effect where no bilinear composition has a rank below the width "
            f"{max(args.encoder_embed_dim, args.decoder_embed_dim)}: drop it"
        )
