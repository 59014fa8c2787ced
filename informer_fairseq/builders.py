"""From configuration to parts: the only place that knows both the flags and the modules' sizes."""

from typing import Any, Callable, Dict, Optional

import torch.nn as nn
import torch.nn.functional as F
from fairseq import utils
from torch import Tensor

from informer_fairseq.channel_mixers.information_organization import InformationOrganization
from informer_fairseq.token_mixers.convolutional import ConvolutionalProjection, ConvolutionalSelfAttention
from informer_fairseq.token_mixers.low_rank import LowRankProjection, LowRankSelfAttention
from informer_fairseq.token_mixers.reduced_attention import ReducedSelfAttention


def build_projection(cfg: Any) -> nn.Module:
    """Builds one projection over positions (``cfg``: a ``TransformerConfig`` that carries our flags)."""
    encoder = cfg.encoder
    if encoder.token_mixer == "low-rank":
        return LowRankProjection(fixed_length=encoder.fixed_length, reduced_length=encoder.reduced_length)
    return ConvolutionalProjection(
        embed_dim=encoder.embed_dim,
        fixed_length=encoder.fixed_length,
        reduced_length=encoder.reduced_length,
        pool_size=encoder.pool_size,
    )


def build_token_mixer(cfg: Any, shared: Dict[str, nn.Module]) -> ReducedSelfAttention:
    """Builds the reduced self-attention of one layer.

    Args:
        cfg: a ``TransformerConfig`` that carries our flags; its token mixer is not ``full``.
        shared: parts that layers of one encoder have in common, filled by the first layer built.
    """
    encoder = cfg.encoder
    if encoder.projection_sharing == "layer":
        if "projection" not in shared:
            shared["projection"] = build_projection(cfg)
        projection = shared["projection"]
    else:
        projection = build_projection(cfg)
    mixer: Any = LowRankSelfAttention if encoder.token_mixer == "low-rank" else ConvolutionalSelfAttention
    return mixer(
        embed_dim=encoder.embed_dim,
        num_heads=encoder.attention_heads,
        projection=projection,
        value_projection=build_projection(cfg) if encoder.projection_sharing == "none" else None,
        dropout=cfg.attention_dropout,
    )


def build_channel_mixer(cfg: Any) -> Optional[InformationOrganization]:
    """Builds what replaces the feed-forward in one layer; None keeps the feed-forward."""
    encoder = cfg.encoder
    if encoder.channel_mixer == "feed-forward":
        return None
    return InformationOrganization(
        fixed_length=encoder.fixed_length, embed_dim=encoder.embed_dim, num_heads=encoder.attention_heads
    )


def build_activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation called ``name``: Leaky-ReLU, which fairseq's ``--activation-fn`` lacks, or one of fairseq's."""
    return leaky_relu if name == "leaky_relu" else utils.get_activation_fn(name)


def leaky_relu(x: Tensor) -> Tensor:
    """Leaky-ReLU in place: its backward pass then needs only its output, which the next linear map keeps anyway."""
    return F.leaky_relu(x, inplace=True)
