"""From configuration to parts: the only place that knows both the flags and the modules' sizes."""

from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from fairseq.distributed import fsdp_wrap
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor

from informer_fairseq import compat
from informer_fairseq.attention import ComposedAttention, HeadAggregation, HeadInteraction, IdentityProjection
from informer_fairseq.channel_mixers.information_organization import InformationOrganization
from informer_fairseq.compositions.bilinear_pooling import LowRankBilinearPooling
from informer_fairseq.compositions.hierarchical import HierarchicalAggregation
from informer_fairseq.compositions.linear import LinearCombination
from informer_fairseq.compositions.scaled_concatenation import scale_of
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
    mixer: Any = LowRankSelfAttention
    if encoder.token_mixer == "convolution":
        mixer = partial(ConvolutionalSelfAttention, drop_null_slots=encoder.drop_null_slots)
    out_proj, head_composition = build_head_composition(cfg, encoder.embed_dim, encoder.attention_heads)
    return mixer(
        embed_dim=encoder.embed_dim,
        num_heads=encoder.attention_heads,
        projection=projection,
        value_projection=build_projection(cfg) if encoder.projection_sharing == "none" else None,
        dropout=cfg.attention_dropout,
        out_proj=out_proj,
        head_composition=head_composition,
    )


def build_channel_mixer(cfg: Any) -> Optional[InformationOrganization]:
    """Builds what replaces the feed-forward in one layer; None keeps the feed-forward."""
    encoder = cfg.encoder
    if encoder.channel_mixer == "feed-forward":
        return None
    return InformationOrganization(
        fixed_length=encoder.fixed_length,
        embed_dim=encoder.embed_dim,
        num_heads=encoder.attention_heads,
        groups=encoder.organization_groups,
    )


def build_activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation called ``name``: Leaky-ReLU, which fairseq's ``--activation-fn`` lacks, or one of fairseq's."""
    return leaky_relu if name == "leaky_relu" else compat.activation(name)


def leaky_relu(x: Tensor) -> Tensor:
    """Leaky-ReLU in place: its backward pass then needs only its output, which the next linear map keeps anyway."""
    return F.leaky_relu(x, inplace=True)


def build_layer_composition(cfg: Any, side: Any) -> Optional[nn.Module]:
    """Builds what composes the layer outputs of one side; None returns the top layer.

    Args:
        cfg: a ``TransformerConfig`` that carries our flags.
        side: its ``encoder`` or ``decoder``.
    """
    if side.layer_composition == "top":
        return None
    if side.layer_composition == "hierarchical":
        return HierarchicalAggregation(num_inputs=side.layers, width=side.embed_dim, hidden_dim=side.ffn_embed_dim)
    # The plain start is the papers' formula as it stands, without a scale.
    near_transformer = cfg.composition_start == "transformer"
    scale = scale_of(side.layers) if near_transformer else 1.0
    sizes = dict(num_inputs=side.layers, input_dim=side.embed_dim, output_dim=side.embed_dim, input_scale=scale)
    linear = side.layer_composition == "linear"
    composition = LinearCombination(**sizes) if linear else _build_pooling(cfg, **sizes)
    if near_transformer:
        composition.select_last()
    return with_quantization_noise(composition, cfg)


def build_attention(stock: Any, cfg: Any, embed_dim: int, num_heads: int, **kwargs: Any) -> nn.Module:
    """Builds an attention whose heads are composed as the flags say.

    Args:
        stock: builds fairseq's own, for the linear composition.
        cfg: a ``TransformerConfig`` that carries our flags.
        embed_dim: model width C.
        num_heads: number of heads h.
        **kwargs: as for fairseq's ``MultiheadAttention``.
    """
    out_proj, head_composition = build_head_composition(cfg, embed_dim, num_heads)
    if out_proj is None or head_composition is None:
        return stock()
    return ComposedAttention(
        embed_dim,
        num_heads,
        out_proj=out_proj,
        head_composition=head_composition,
        dropout=cfg.attention_dropout,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
        **kwargs,
    )


def build_head_composition(cfg: Any, embed_dim: int, num_heads: int) -> Tuple[Optional[nn.Module], Optional[nn.Module]]:
    """Builds what an attention does with its heads side by side: ``out_proj`` and what follows it.

    Both are None for the linear composition, which any attention has as its own.
    """
    if cfg.head_composition == "linear":
        return None, None
    if cfg.head_composition == "hierarchical":
        aggregation = HeadAggregation(num_heads=num_heads, embed_dim=embed_dim)
        return IdentityProjection(embed_dim), with_quantization_noise(aggregation, cfg)
    pooling = _build_pooling(cfg, num_inputs=num_heads, input_dim=embed_dim // num_heads, output_dim=embed_dim)
    output_projection: Optional[nn.Linear] = None
    if cfg.head_composition_keep_output_projection:
        output_projection = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(output_projection.weight)
        nn.init.zeros_(output_projection.bias)
        if cfg.composition_start == "transformer" and not cfg.composition_second_order_only:
            pooling.start_from_linear(torch.eye(embed_dim))
    composition = HeadInteraction(interaction=pooling.interaction, output_projection=output_projection)
    return with_quantization_noise(pooling.factors, cfg), with_quantization_noise(composition, cfg)


def _build_pooling(cfg: Any, **sizes: Any) -> LowRankBilinearPooling:
    pooling = LowRankBilinearPooling(
        rank=cfg.composition_rank, first_order=not cfg.composition_second_order_only, **sizes
    )
    if cfg.composition_start == "plain":
        pooling.reset_parameters_plainly()
    return pooling


def with_quantization_noise(module: nn.Module, cfg: Any) -> nn.Module:
    """Hooks fairseq's ``--quant-noise-pq`` into the linear maps of ``module`` and returns it."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            quant_noise(part, cfg.quant_noise.pq, cfg.quant_noise.pq_block_size)
    return module


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Wraps a layer for activation checkpointing and FSDP, as fairseq wraps its own."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap)
