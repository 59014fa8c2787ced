"""Self-attention whose keys and values are a few slots instead of one position each."""

import math
from typing import Any, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from informer_fairseq.token_mixers.recomputed_attention import (
    AttentionWithDropout,
    FoldedAttention,
    folded_weights,
    heads_by_sentence,
    product_with_folded,
)


class ReducedSelfAttention(nn.Module):
    """Multi-head self-attention over S reduced slots: what the efficient token mixers have in common.

    Its four linear maps have the names, shapes and initialisation of fairseq's ``MultiheadAttention``, so that a
    stock checkpoint's attention fits. Subclasses turn the input into slots.

    Args:
        embed_dim: model width C.
        num_heads: number of heads h; must divide ``embed_dim``.
        dropout: dropout probability of the attention weights.
        out_proj: a linear map of the heads side by side, of any width, or the identity; W_O by default.
        head_composition: maps what ``out_proj`` gives to (..., C); None where that is the output.

    Raises:
        ValueError: ``embed_dim`` is not divisible by ``num_heads``, or ``dropout`` is no probability.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        out_proj: Optional[nn.Module] = None,
        head_composition: Optional[nn.Module] = None,
    ):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads != 0:
            raise ValueError(f"width {embed_dim} is not divisible by {num_heads} attention heads")
        if not 0 <= dropout <= 1:
            raise ValueError(f"attention dropout {dropout} is not between 0 and 1")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj: Any = nn.Linear(embed_dim, embed_dim) if out_proj is None else out_proj
        self.out_proj_is_linear = isinstance(self.out_proj, nn.Linear)
        self.head_composition = head_composition
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """fairseq's initialisation: Xavier, with 1/sqrt(2) as gain of the query, key and value maps.

        An ``out_proj`` that was handed in has a start of its own.
        """
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=1 / math.sqrt(2))
        if self.head_composition is None:
            nn.init.xavier_uniform_(self.out_proj.weight)
            nn.init.zeros_(self.out_proj.bias)

    def attend(self, x: Tensor, keys: Tensor, values: Tensor, scores: Optional[Tensor] = None) -> Tensor:
        """Lets every position attend to the slots, projects the result and composes the heads.

        ``softmax((X W_Q) K^T) V W_O`` may be multiplied in two orders with the same result: as written, or with W_Q and
        W_O taken to the slots first, ``softmax(X (K W_Q^T)^T) (V W_O)``. The second costs 2 S C^2 a sentence instead of
        2 C^2 a token, and keeps no queries and no attended values for the backward pass. The cheaper one is taken.

        Args:
            x: B x T x C, the input of the queries.
            keys: B x S x C.
            values: B x S x C.
            scores: S, or B x 1 x 1 x S, added to the scores of every head and query; None to add nothing. With
                log(count) one slot stands for that many equal ones, exactly, as these would get equal weights.

        Returns:
            B x T x C.
        """
        if self.slots_first_is_cheaper(x.size(1), keys.size(1)):
            mixed = self.attend_slots_first(x, keys, values, scores)
        else:
            mixed = self.attend_queries_first(x, keys, values, scores)
        if self.head_composition is not None:
            mixed = self.head_composition(mixed)
        return mixed

    def slots_first_is_cheaper(self, length: int, slots: int) -> bool:
        """Compares the costs of both orders for one sentence, in multiply-adds divided by C.

        Slots first also moves 2 h S rows about, each number of them worth some 100 multiply-adds (measured on a CPU).
        """
        if not self.out_proj_is_linear:
            return False
        width = self.out_proj.weight.size(0) / self.embed_dim  # of the result, in units of C
        slots_first = (slots * self.embed_dim + (length + 100) * slots * self.num_heads) * (1 + width)
        queries_first = length * self.embed_dim * (1 + width) + 2 * length * slots
        return slots_first < queries_first

    def attend_queries_first(self, x: Tensor, keys: Tensor, values: Tensor, scores: Optional[Tensor]) -> Tensor:
        """Attention in the usual order, up to ``out_proj``; ``scores`` as for ``attend``."""
        batch, length, slots = x.size(0), x.size(1), keys.size(1)
        queries = self.q_proj(x).view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
        keys = keys.view(batch, slots, self.num_heads, self.head_dim).transpose(1, 2)
        values = values.view(batch, slots, self.num_heads, self.head_dim).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        if not torch.jit.is_scripting() and dropout > 0 and x.device.type == "cpu":
            # torch has no fused kernel for this case.
            if scores is None:
                scores = x.new_zeros(slots)
            attended = AttentionWithDropout.apply(queries, keys, values, scores, dropout)
        else:
            attended = F.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=None if scores is None else scores.expand(batch, self.num_heads, length, slots),
                dropout_p=dropout,
            )
        return self.out_proj(attended.transpose(1, 2).reshape(batch, length, -1))  # B x h x T x d -> B x T x C

    def attend_slots_first(self, x: Tensor, keys: Tensor, values: Tensor, scores: Optional[Tensor]) -> Tensor:
        """Attention with query map and ``out_proj`` taken to the slots; ``scores`` as for ``attend``."""
        batch, slots = x.size(0), keys.size(1)
        heads, width = self.num_heads, self.head_dim
        if scores is None:
            scores = x.new_zeros(slots)
        keys = self.slots_by_head(keys) * width**-0.5  # h x B S x d
        query_weight = self.q_proj.weight.view(heads, width, self.embed_dim)  # h d x C -> h x d x C
        query_bias = self.q_proj.bias.view(heads, width, 1)
        folded = heads_by_sentence(torch.bmm(keys, query_weight), batch)  # B x h S x C
        # h x B S x 1 -> B x 1 x h x S -> B x 1 x h S
        offset = heads_by_sentence(torch.bmm(keys, query_bias), batch).view(batch, 1, heads, slots) + scores
        offset = offset.view(batch, 1, heads * slots)
        values = self.slots_by_head(values)
        out_weight = self.out_proj.weight.view(-1, heads, width).permute(1, 2, 0)  # N x h d -> h x d x N
        bias: Optional[Tensor] = self.out_proj.bias
        dropout = self.dropout if self.training else 0.0
        if torch.jit.is_scripting():
            weights = F.dropout(folded_weights(x, folded, offset, heads), dropout)
            return product_with_folded(weights, values, out_weight, bias)
        return FoldedAttention.apply(x, folded, offset, values, out_weight, bias, dropout)

    def slots_by_head(self, x: Tensor) -> Tensor:
        """B x S x C -> h x B S x d."""
        split = x.view(x.size(0), x.size(1), self.num_heads, self.head_dim)
        return split.permute(2, 0, 1, 3).reshape(self.num_heads, x.size(0) * x.size(1), self.head_dim)
