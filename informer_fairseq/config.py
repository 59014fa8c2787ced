"""The encoders' flags: one dataclass for names, types and help, presets for the architectures, checks across fields."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from informer_fairseq.errors import InputError

TOKEN_MIXERS = ("full", "low-rank", "convolution")
CHANNEL_MIXERS = ("feed-forward", "information-organization")
SHARING_MODES = ("none", "kv", "layer")
ENCODER_ACTIVATIONS = ("leaky_relu", *utils.get_available_activation_fns())


@dataclass
class EfficientEncoderConfig(FairseqDataclass):
    """Flags of the efficient encoders. Defaults are the architecture's and are set by :func:`set_encoder_defaults`."""

    encoder_token_mixer: Optional[ChoiceEnum(TOKEN_MIXERS)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "how encoder positions exchange information: full self-attention, low-rank (Linformer), or "
            "convolution (strided convolution and max-pooling of keys and values); default: the architecture's"
        },
    )
    encoder_channel_mixer: Optional[ChoiceEnum(CHANNEL_MIXERS)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={"help": "what follows the token mixer in an encoder layer; default: the architecture's"},
    )
    encoder_fixed_length: Optional[int] = field(
        default=None,
        metadata={
            "help": "n, the largest number of source positions, </s> included (default: 200); weights have n columns, "
            "so it is fixed for the life of a checkpoint. --max-source-positions can only lower the limit"
        },
    )
    encoder_reduced_length: Optional[int] = field(
        default=None,
        metadata={"help": "r, the number of slots (low-rank) or convolution windows that n is reduced to (default: 8)"},
    )
    encoder_pool_size: Optional[int] = field(
        default=None,
        metadata={"help": "windows max-pooled into one slot, convolution only (default: 2); must divide r"},
    )
    encoder_drop_null_slots: bool = field(
        default=False,
        metadata={
            "help": "convolution only: no token attends to slots behind the end of its sentence (an ablation: a "
            "sentence of up to pool * n / r tokens, 50 by default, is then left with one slot)"
        },
    )
    encoder_organization_groups: Optional[int] = field(
        default=None,
        metadata={
            "help": "information organization only: neighbourhoods of n / groups positions that organize features on "
            "their own, so that a token's cost does not grow with n (default: 1, the paper's); must divide n"
        },
    )
    encoder_projection_sharing: Optional[ChoiceEnum(SHARING_MODES)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "who shares the projection over positions: none (keys and values of each layer have their own), "
            "kv (one a layer), layer (one for all layers, the paper's); default: layer"
        },
    )
    encoder_activation_fn: Optional[ChoiceEnum(ENCODER_ACTIVATIONS)] = field(  # type: ignore[valid-type]
        default=None,
        metadata={
            "help": "activation of the encoder's feed-forward; default: --activation-fn where given, else the "
            "architecture's (leaky_relu; relu for ni_transformer)"
        },
    )


def set_encoder_defaults(
    args: Namespace, *, token_mixer: str, channel_mixer: str, activation: Optional[str] = "leaky_relu"
) -> None:
    """Fills in what the user left open.

    Only flags that the chosen mixers read get a default: a flag that is set although nothing reads it was given by the
    user and is refused by :func:`check_encoder_flags`.

    Args:
        args: parsed flags, changed in place; an absent attribute and None both mean "not given".
        token_mixer: the architecture's token mixer.
        channel_mixer: the architecture's channel mixer.
        activation: the architecture's activation in the encoder's feed-forward; None for fairseq's default.
    """
    set_default(args, "encoder_token_mixer", token_mixer)
    set_default(args, "encoder_channel_mixer", channel_mixer)
    if args.encoder_channel_mixer == "feed-forward":
        set_default(args, "encoder_activation_fn", _given(args, "activation_fn") or activation or "relu")
    if is_position_bound(args.encoder_token_mixer, args.encoder_channel_mixer):
        set_default(args, "encoder_fixed_length", 200)
    if args.encoder_channel_mixer == "information-organization":
        set_default(args, "encoder_organization_groups", 1)
    if args.encoder_token_mixer != "full":
        set_default(args, "encoder_reduced_length", 8)
        set_default(args, "encoder_projection_sharing", "layer")
    if args.encoder_token_mixer == "convolution":
        set_default(args, "encoder_pool_size", 2)
    set_default(args, "encoder_drop_null_slots", False)


def set_tiny_sizes(args: Namespace) -> None:
    """The ``_tiny`` sizes: 4+4 layers, width 128, feed-forward 256, 4 heads."""
    for side in ("encoder", "decoder"):
        set_default(args, f"{side}_layers", 4)
        set_default(args, f"{side}_embed_dim", 128)
        set_default(args, f"{side}_ffn_embed_dim", 256)
        set_default(args, f"{side}_attention_heads", 4)


def is_position_bound(token_mixer: str, channel_mixer: str) -> bool:
    """Whether the encoder has weights for each position, and with them a largest source length n."""
    return token_mixer != "full" or channel_mixer != "feed-forward"


def check_encoder_flags(args: Namespace) -> None:
    """Checks the encoder's flags against each other, before any data is read or memory taken.

    Args:
        args: flags with the architecture's defaults filled in.

    Raises:
        InputError: a value does not fit; the message names it, the limit and the way out.
    """
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        probability = getattr(args, name, None) or 0.0
        if not 0 <= probability <= 1:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} {probability} is not between 0 and 1: give a probability, such as 0.1")
    token_mixer, channel_mixer = args.encoder_token_mixer, args.encoder_channel_mixer
    check_choice("--encoder-token-mixer", token_mixer, TOKEN_MIXERS)
    check_choice("--encoder-channel-mixer", channel_mixer, CHANNEL_MIXERS)
    if channel_mixer == "feed-forward":
        check_choice("--encoder-activation-fn", args.encoder_activation_fn, ENCODER_ACTIVATIONS)
    _check_heads(args, "encoder")
    width, heads = args.encoder_embed_dim, args.encoder_attention_heads
    _check_unread_flags(args)
    if is_position_bound(token_mixer, channel_mixer):
        _check_stock_flags(args)
        if args.encoder_fixed_length < 1:
            raise InputError(
                f"--encoder-fixed-length {args.encoder_fixed_length} is below 1: give a length of 1 or more"
            )
    if channel_mixer == "information-organization" and (width // heads) % 2 != 0:
        raise InputError(
            "--encoder-channel-mixer information-organization pools a head's features in pairs, but the head width is "
            f"{width // heads} (--encoder-embed-dim {width} by --encoder-attention-heads {heads}): choose an even one"
        )
    if channel_mixer == "information-organization":
        _check_groups(args)
    if token_mixer != "full":
        _check_lengths(args)
    _check_heads(args, "decoder")


def _check_heads(args: Namespace, side: str) -> None:
    width, heads = getattr(args, f"{side}_embed_dim"), getattr(args, f"{side}_attention_heads")
    if heads < 1 or width % heads != 0:
        raise InputError(
            f"--{side}-embed-dim {width} is not divisible by --{side}-attention-heads {heads}: "
            "choose a number of heads that divides the width"
        )


def _check_groups(args: Namespace) -> None:
    n, groups = args.encoder_fixed_length, args.encoder_organization_groups
    if groups < 1 or n % groups != 0:
        raise InputError(
            f"--encoder-fixed-length {n} is not divisible by --encoder-organization-groups {groups}: choose a number "
            "of groups that divides n"
        )


def _check_lengths(args: Namespace) -> None:
    n, r = args.encoder_fixed_length, args.encoder_reduced_length
    check_choice("--encoder-projection-sharing", args.encoder_projection_sharing, SHARING_MODES)
    if not 1 <= r <= n:
        raise InputError(
            f"--encoder-reduced-length {r} is not between 1 and --encoder-fixed-length {n}: choose a smaller r or a "
            "larger n"
        )
    if args.encoder_token_mixer != "convolution":
        return
    if n % r != 0:
        lower, upper = n - n % r, n + r - n % r
        raise InputError(
            f"--encoder-fixed-length {n} is not divisible by --encoder-reduced-length {r} (the convolution's stride is "
            f"n / r): choose n = {lower} or {upper}, or another r"
        )
    pool = args.encoder_pool_size
    if pool < 1 or r % pool != 0:
        raise InputError(
            f"--encoder-reduced-length {r} is not divisible by --encoder-pool-size {pool}: choose a pool that divides r"
        )


def _check_unread_flags(args: Namespace) -> None:
    """Refuses flags that the chosen mixers would ignore."""
    token_mixer, channel_mixer = args.encoder_token_mixer, args.encoder_channel_mixer
    unread = []
    if channel_mixer == "feed-forward":
        unread.append("encoder_organization_groups")
    else:
        unread.append("encoder_activation_fn")
    if not is_position_bound(token_mixer, channel_mixer):
        unread.append("encoder_fixed_length")
    if token_mixer == "full":
        unread += ["encoder_reduced_length", "encoder_projection_sharing"]
    if token_mixer != "convolution":
        unread += ["encoder_pool_size", "encoder_drop_null_slots"]
    for name in unread:
        given = as_given(args, name)
        if given is not None:
            raise InputError(
                f"{given} has no effect with --encoder-token-mixer "
                f"{token_mixer} and --encoder-channel-mixer {channel_mixer}: drop it, or choose a mixer that reads it"
            )


def _check_stock_flags(args: Namespace) -> None:
    """Refuses stock flags that cannot reach weights over positions."""
    way_out = "drop the flag, or use --encoder-token-mixer full --encoder-channel-mixer feed-forward"
    for name in ("quant_noise_pq", "quant_noise_scalar"):
        if (_given(args, name) or 0) > 0:
            raise InputError(
                f"--{name.replace('_', '-')} {_given(args, name)} cannot be combined with --encoder-token-mixer "
                f"{args.encoder_token_mixer} and --encoder-channel-mixer {args.encoder_channel_mixer}: fairseq's "
                "quantization noise reaches Linear, Embedding and Conv2d modules, not weights over positions; "
                + way_out
            )
    if _given(args, "encoder_xformers_att_config"):
        raise InputError(
            "--encoder-xformers-att-config chooses a kernel for full attention and cannot be combined with "
            f"--encoder-token-mixer {args.encoder_token_mixer}: {way_out}"
        )


def check_choice(flag: str, value: Any, choices: tuple) -> None:
    """Refuses a value that is not one of the choices (Raises InputError)."""
    if value not in choices:
        raise InputError(f"{flag} {value} is not one of {', '.join(choices)}")


def as_given(args: Namespace, name: str) -> Optional[str]:
    """A flag as it was written, for a message; None where it was not given or is a switch that is off."""
    value = _given(args, name)
    if value is None or value is False:
        return None
    return f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")


def _given(args: Namespace, name: str) -> Any:
    return getattr(args, name, None)


def set_default(args: Namespace, name: str, value: Any) -> None:
    """Sets a flag that was not given; an absent attribute and None both mean that."""
    if getattr(args, name, None) is None:
        setattr(args, name, value)
