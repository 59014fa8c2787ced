"""Encoder layers of other low-rank implementations, where they are installed, with stock's norms, dropout and sizes."""

import argparse
from typing import Any, Dict, Optional

import torch.nn as nn
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

FAIRSEQ, PYPI = "fairseq's linformer example", "linformer (PyPI)"


def build_peers(layers: int, length: int, slots: int) -> Dict[str, nn.ModuleList]:
    """Stacks by name, with n = ``length`` positions and ``slots`` slots; those that are not installed are left out."""
    made = {FAIRSEQ: _fairseqs(layers, length, slots), PYPI: _pypis(layers, length, slots)}
    return {name: stack for name, stack in made.items() if stack is not None}


def _fairseqs(layers: int, length: int, slots: int) -> Optional[nn.ModuleList]:
    """fairseq's example: keys and values through one shared projection."""
    try:
        from fairseq.examples.linformer.linformer_src.modules import linformer_sentence_encoder_layer as example
    except ImportError:
        return None
    args = argparse.Namespace(dropout=0.1, compressed=length // slots, max_positions=length)
    args.shared_kv_compressed, args.freeze_compress = 1, 0
    args.quant_noise_pq, args.quant_noise_pq_block_size = 0, 8
    ARCH_CONFIG_REGISTRY["transformer"](args)
    shared = nn.Linear(length, slots)
    made = nn.ModuleList(example.LinformerTransformerEncoderLayer(args, shared) for _ in range(layers))
    for layer in made:
        layer.self_attn.dropout = 0.0  # the example takes the layer's dropout; ours and stock's attention has none
    return made


def _pypis(layers: int, length: int, slots: int) -> Optional[nn.ModuleList]:
    """The ``linformer`` package: one head of keys, shared with the values."""
    try:
        from linformer import LinformerSelfAttention
    except ImportError:
        return None

    class Layer(TransformerEncoderLayerBase):
        """A stock layer around the package's attention, which has no padding mask."""

        def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
            attention = LinformerSelfAttention(
                embed_dim, length, k=slots, heads=cfg.encoder.attention_heads, one_kv_head=True, share_kv=True
            )
            return _FairseqInterface(attention)

    args = argparse.Namespace(dropout=0.1)
    ARCH_CONFIG_REGISTRY["transformer"](args)
    cfg = TransformerConfig.from_namespace(args)
    return nn.ModuleList(Layer(cfg) for _ in range(layers))


class _FairseqInterface(nn.Module):
    """An attention of B x T x C in the place of fairseq's."""

    def __init__(self, attention: nn.Module):
        super().__init__()
        self.attention = attention

    def forward(self, query: Tensor, **_: Any) -> Any:
        """T x B x C -> T x B x C."""
        return self.attention(query.transpose(0, 1)).transpose(0, 1), None
