"""One encoder layer: a token mixer and a channel mixer, each with residual connection and layer norm."""

from typing import Any, Dict, Final, Optional

import torch
import torch.nn as nn
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from informer_fairseq import compat
from informer_fairseq.builders import build_activation, build_attention, build_channel_mixer, build_token_mixer
from informer_fairseq.dropout import add_dropped
from informer_fairseq.padding import unmask_empty_rows


@compat.without_fused_encoder_layer
class EfficientEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer with exchangeable token mixer, channel mixer and composition of heads.

    Post-norm by default as in both papers, pre-norm with ``--encoder-normalize-before``. The full token mixer is
    fairseq's attention, the feed-forward fairseq's ``fc1`` and ``fc2``; both keep their names in a checkpoint.

    With mixers bound to positions the layer works batch first in memory while its interface stays fairseq's time first:
    from the second layer of a stack on, the transposition at either end costs nothing.

    Args:
        cfg: a ``TransformerConfig`` that carries our flags (``cfg.encoder.token_mixer`` and so on).
        shared: parts that the layers of one encoder have in common; filled by the first layer built.
    """

    uses_full_attention: Final[bool]
    batch_first: Final[bool]

    def __init__(self, cfg: Any, shared: Dict[str, nn.Module]):
        self._shared = shared  # read by build_self_attention, which the base class calls
        super().__init__(cfg)
        del self._shared
        self.uses_full_attention = cfg.encoder.token_mixer == "full"
        self.channel_mixer = build_channel_mixer(cfg)
        self.batch_first = not self.uses_full_attention or self.channel_mixer is not None
        if self.channel_mixer is not None:
            self.fc1 = self.fc2 = None
        else:
            self.activation_fn = build_activation(cfg.encoder.activation_fn)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """The token mixer, as ``self_attn``."""
        if cfg.encoder.token_mixer != "full":
            return compat.readable_by_fused_layer(build_token_mixer(cfg, self._shared))
        attention = build_attention(
            lambda: super(EfficientEncoderLayer, self).build_self_attention(embed_dim, cfg),
            cfg,
            embed_dim,
            cfg.encoder.attention_heads,
            self_attention=True,
            xformers_att_config=cfg.encoder.xformers_att_config,
        )
        return compat.readable_by_fused_layer(attention)

    def build_fc1(self, input_dim: int, output_dim: int, q_noise: float, qn_block_size: int) -> Optional[nn.Module]:
        """The feed-forward's first map; None where another channel mixer replaces it."""
        if self.cfg.encoder.channel_mixer != "feed-forward":
            return compat.absent_linear()
        return super().build_fc1(input_dim, output_dim, q_noise, qn_block_size)

    def build_fc2(self, input_dim: int, output_dim: int, q_noise: float, qn_block_size: int) -> Optional[nn.Module]:
        """The feed-forward's second map; None where another channel mixer replaces it."""
        if self.cfg.encoder.channel_mixer != "feed-forward":
            return compat.absent_linear()
        return super().build_fc2(input_dim, output_dim, q_noise, qn_block_size)

    def forward(self, x: Tensor, encoder_padding_mask: Optional[Tensor], attn_mask: Optional[Tensor] = None) -> Tensor:
        """Runs the layer.

        Args:
            x: T x B x C; for mixers bound to positions, sentences stand at the left edge.
            encoder_padding_mask: B x T, True for padding positions; None if there are none.
            attn_mask: T x T, True where attention is forbidden; with full attention only.

        Returns:
            T x B x C.

        Raises:
            ValueError: ``attn_mask`` is given although keys are compressed, so that it has no meaning.
        """
        x = self.swap(x).contiguous()  # T x B x C -> B x T x C, where the layer is batch first
        residual = x
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
        x = self.add(residual, self.mix_tokens(x, encoder_padding_mask, attn_mask))
        if not self.normalize_before:
            x = self.self_attn_layer_norm(x)

        residual = x
        if self.normalize_before:
            x = self.final_layer_norm(x)
        x = self.add(residual, self.mix_channels(x, encoder_padding_mask))
        if not self.normalize_before:
            x = self.final_layer_norm(x)
        return self.swap(x)  # -> T x B x C

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Residual connection, with dropout on x; with the random numbers of stock where the mixers are stock's."""
        if torch.jit.is_scripting():
            return residual + self.dropout_module(x)
        if not self.batch_first:
            return residual + self.dropout_module(x)
        return add_dropped(residual, x, self.dropout_module)

    def swap(self, x: Tensor) -> Tensor:
        """Between the interface's T x B x C and the order in which the layer works."""
        return x.transpose(0, 1) if self.batch_first else x

    def mix_tokens(self, x: Tensor, padding_mask: Optional[Tensor], attn_mask: Optional[Tensor]) -> Tensor:
        """Through the token mixer, in the order in which the layer works."""
        x = self.swap(x)  # -> T x B x C, the mixers' interface
        if self.uses_full_attention:
            if padding_mask is not None:
                padding_mask = unmask_empty_rows(padding_mask)
            x, _ = self.self_attn(x, x, x, key_padding_mask=padding_mask, need_weights=False, attn_mask=attn_mask)
        else:
            if attn_mask is not None:
                raise ValueError("attn_mask has no meaning over compressed keys: use --encoder-token-mixer full")
            x = self.self_attn(x, padding_mask)
        return self.swap(x)

    def mix_channels(self, x: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
        """Through information organization or the feed-forward, in the order in which the layer works."""
        if self.channel_mixer is not None:
            return self.swap(self.channel_mixer(self.swap(x), padding_mask))
        # As rows: the linear map's output is then no view, on which an activation in place would cost three copies.
        rows = self.activation_fn(self.fc1(x.view(-1, x.size(2))))  # B x T x C -> B T x C
        return self.fc2(self.activation_dropout_module(rows)).view_as(x)
