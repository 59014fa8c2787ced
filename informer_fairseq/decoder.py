"""The decoder: fairseq's, with a choice of head and layer composition."""

from typing import Any, Dict, List, Optional, Tuple

import torch.nn as nn
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from informer_fairseq.builders import build_activation, build_attention, build_layer_composition, wrap_layer


class ComposedDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer, with the heads of both attentions composed as the flags say."""

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any):
        super().__init__(cfg, *args, **kwargs)
        self.activation_fn = build_activation(str(cfg.activation_fn))

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        """The attention over the target."""
        return build_attention(
            lambda: super(ComposedDecoderLayer, self).build_self_attention(embed_dim, cfg, add_bias_kv, add_zero_attn),
            cfg,
            embed_dim,
            cfg.decoder.attention_heads,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            self_attention=not cfg.cross_self_attention,
            xformers_att_config=cfg.decoder.xformers_att_config,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """The attention over the source."""
        return build_attention(
            lambda: super(ComposedDecoderLayer, self).build_encoder_attention(embed_dim, cfg),
            cfg,
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            encoder_decoder_attention=True,
            xformers_att_config=cfg.encoder.xformers_att_config,
        )


class ComposedDecoder(TransformerDecoderBase):
    """fairseq's Transformer decoder whose heads and layer outputs may be composed.

    A composition works on each position alone, so scores of incremental decoding equal teacher-forced ones.

    Args:
        cfg: a ``TransformerConfig`` that carries our flags.
        dictionary: the target dictionary.
        embed_tokens: the target embedding.
        no_encoder_attn: build layers without attention over the source.
        output_projection: maps features to the vocabulary; built from ``cfg`` by default.
    """

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Embedding,
        no_encoder_attn: bool = False,
        output_projection: Optional[nn.Module] = None,
    ):
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn, output_projection)
        self.layer_composition = build_layer_composition(cfg, cfg.decoder)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        """One layer, wrapped for activation checkpointing and FSDP as fairseq wraps its own."""
        return wrap_layer(ComposedDecoderLayer(cfg, no_encoder_attn), cfg)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Runs the layers and composes their outputs.

        Args:
            prev_output_tokens: B x T target indices so far.
            encoder_out: what the encoder returned.
            incremental_state: the cache of incremental decoding; the last token alone is then computed.
            full_context_alignment: let every position see all others.
            alignment_layer: the layer whose attention weights are returned.
            alignment_heads: how many of its heads are averaged.

        Returns:
            B x T x C (T = 1 with ``incremental_state``), and fairseq's dictionary of ``attn`` and ``inner_states``.
        """
        x, extra = self.extract_features_scriptable(
            prev_output_tokens, encoder_out, incremental_state, full_context_alignment, alignment_layer, alignment_heads
        )
        if self.layer_composition is not None:
            outputs: List[Tensor] = []
            for state in extra["inner_states"][1:]:  # T x B x C each; the first is the embedding
                assert state is not None
                outputs.append(state)
            x = self.layer_composition(outputs)
            if self.layer_norm is not None:
                x = self.layer_norm(x)
            x = x.transpose(0, 1)  # T x B x C -> B x T x C
            if self.project_out_dim is not None:
                x = self.project_out_dim(x)
        return x, extra
