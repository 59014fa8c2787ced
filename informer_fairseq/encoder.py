"""The encoder: fairseq's, with our layers, sentences at the left edge, a fixed largest length, layer composition."""

from typing import Any, Dict, List, Optional

import torch
import torch.nn as nn
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor

from informer_fairseq.builders import build_layer_composition, wrap_layer
from informer_fairseq.config import is_position_bound
from informer_fairseq.encoder_layer import EfficientEncoderLayer
from informer_fairseq.padding import (
    check_length,
    inverse_columns,
    left_aligning_columns,
    reorder_columns,
    unmask_empty_rows,
)


class EfficientEncoder(TransformerEncoderBase):
    """fairseq's Transformer encoder over our layers, whose outputs may be composed.

    The output for a sentence depends neither on the other sentences of its batch nor on the padding side: sources are
    moved to the left edge before the first layer and the outputs moved back behind the last, so that column j of the
    output still belongs to column j of the source (alignments and unknown-word replacement rely on it).

    Args:
        cfg: a ``TransformerConfig`` that carries our flags.
        dictionary: the source dictionary.
        embed_tokens: the source embedding.
        return_fc: must be False; kept for fairseq's signature.
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, return_fc: bool = False):
        if return_fc:
            raise ValueError("return_fc is not offered: information organization has no feed-forward result to return")
        self._shared: Dict[str, nn.Module] = {}  # filled by the first layer that is built
        super().__init__(cfg, dictionary, embed_tokens)
        del self._shared  # from here on the layers own what they share
        self.layer_composition = build_layer_composition(cfg, cfg.encoder)
        self.fixed_length = 0
        if is_position_bound(cfg.encoder.token_mixer, cfg.encoder.channel_mixer):
            self.fixed_length = cfg.encoder.fixed_length
            # n, r and pool travel with the weights: equal shapes do not mean equal lengths (200 / 8 = 100 / 4).
            # fairseq's moving average leaves alone what has "version" in its name, as these integers need.
            lengths = [
                getattr(cfg.encoder, name, None) or 0 for name in ("fixed_length", "reduced_length", "pool_size")
            ]
            self.register_buffer("length_version", torch.tensor(lengths))

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        """One layer, wrapped for activation checkpointing and FSDP as fairseq wraps its own."""
        return wrap_layer(EfficientEncoderLayer(cfg, self._shared), cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ) -> Dict[str, List[Tensor]]:
        """Encodes a batch.

        Args:
            src_tokens: B x T token indices, padded on either side.
            src_lengths: B, unused: the padding tells the lengths.
            return_all_hiddens: also return the embedding's and every layer's output.
            token_embeddings: B x T x C to use in place of the embedding's look-up.

        Returns:
            fairseq's encoder output: ``encoder_out`` (T x B x C), ``encoder_padding_mask`` (B x T, True for padding
            positions; nowhere in a row of padding alone), ``encoder_embedding`` (B x T x C), ``encoder_states``
            (T x B x C each) in lists.

        Raises:
            ValueError: T exceeds the fixed length n.
        """
        columns: Optional[Tensor] = None
        if self.fixed_length > 0:
            check_length(src_tokens.size(1), self.fixed_length)
            columns = left_aligning_columns(src_tokens.eq(self.padding_idx))
        if columns is not None:
            src_tokens = src_tokens.gather(1, columns)
            if token_embeddings is not None:
                token_embeddings = reorder_columns(token_embeddings, columns)
        if self.layer_composition is None:
            out = self.forward_scriptable(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        else:
            out = self.forward_composed(src_tokens, return_all_hiddens, token_embeddings)
        if columns is not None:
            back = inverse_columns(columns)
            for name in ("encoder_out", "encoder_states"):
                out[name] = [
                    reorder_columns(state.transpose(0, 1), back).transpose(0, 1) for state in out[name]
                ]  # T x B x C
            out["encoder_embedding"] = [reorder_columns(state, back) for state in out["encoder_embedding"]]
            out["encoder_padding_mask"] = [mask.gather(1, back) for mask in out["encoder_padding_mask"]]
        out["encoder_padding_mask"] = [unmask_empty_rows(mask) for mask in out["encoder_padding_mask"]]
        # Position-bound layers keep batch-first memory; the decoder reads the output once in each of its layers.
        out["encoder_out"] = [state.contiguous() for state in out["encoder_out"]]
        return out

    def forward_composed(
        self, src_tokens: Tensor, return_all_hiddens: bool, token_embeddings: Optional[Tensor]
    ) -> Dict[str, List[Tensor]]:
        """Runs the layers and composes their outputs; takes and returns the same as ``forward``.

        fairseq's ``forward_scriptable`` hands out the layers' outputs, but not under TorchScript.
        """
        padding_mask = src_tokens.eq(self.padding_idx)
        has_padding = bool(padding_mask.any())
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        if has_padding:
            x = x.masked_fill(padding_mask.unsqueeze(2), 0.0)
        x = x.transpose(0, 1)  # B x T x C -> T x B x C
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], padding_mask if has_padding else None))
        if self.layer_composition is not None:  # known to the caller, but not to TorchScript
            x = self.layer_composition(states[1:])
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        empty: List[Tensor] = []
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding_mask],
            "encoder_embedding": [embedding],
            "encoder_states": states if return_all_hiddens else empty,
            "fc_results": empty,
            "src_tokens": empty,
            "src_lengths": [padding_mask.logical_not().sum(dim=1, dtype=torch.int32).unsqueeze(1)],
        }

    @torch.jit.export
    def reorder_encoder_out(self, encoder_out: Dict[str, List[Tensor]], new_order: Tensor) -> Dict[str, List[Tensor]]:
        """Takes rows of an encoder output, as beam search does at every step.

        Most steps only exchange hypotheses of one sentence, and all of them have the same encoder output: which
        sentence a row holds is remembered under ``rows``, and an order that moves no sentence copies nothing.

        Args:
            encoder_out: what ``forward`` or this method gave, for N rows.
            new_order: M indices of rows.

        Returns:
            The same for M rows.
        """
        if "rows" in encoder_out:
            rows = encoder_out["rows"][0]
        else:
            rows = torch.arange(encoder_out["encoder_out"][0].size(1), device=new_order.device)
        moved = rows.index_select(0, new_order)
        if moved.size(0) == rows.size(0) and bool(torch.eq(moved, rows).all()):
            return encoder_out
        reordered: Dict[str, List[Tensor]] = {}
        for name, tensors in encoder_out.items():
            if name != "fc_results":  # dropped by fairseq's as well; a list of None
                # T x B x C; all others have the batch first.
                dim = 1 if name == "encoder_out" or name == "encoder_states" else 0
                reordered[name] = [tensor.index_select(dim, new_order) for tensor in tensors]
        reordered["rows"] = [moved]
        return reordered

    def max_positions(self) -> int:
        """The largest source length: fairseq's limit, or n where that is smaller."""
        limit = super().max_positions()
        return min(limit, self.fixed_length) if self.fixed_length > 0 else limit
