"""fairseq's attention with another composition of its heads."""

from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn as nn
from fairseq.modules import MultiheadAttention
from torch import Tensor

from informer_fairseq import compat
from informer_fairseq.compositions.bilinear_pooling import BilinearInteraction
from informer_fairseq.compositions.hierarchical import HierarchicalAggregation


class HeadInteraction(nn.Module):
    """Behind an ``out_proj`` of width 2 r: the product of its two halves, P, and W_O where it is kept.

    Args:
        interaction: maps (..., 2 r) to (..., C).
        output_projection: W_O behind P; None where P takes its place.
    """

    def __init__(self, *, interaction: BilinearInteraction, output_projection: Optional[nn.Linear] = None):
        super().__init__()
        self.interaction = interaction
        self.output_projection = output_projection

    def forward(self, factors: Tensor) -> Tensor:
        """(..., 2 r) -> (..., C)."""
        out = self.interaction(factors)
        if self.output_projection is not None:
            out = self.output_projection(out)
        return out


class HeadAggregation(nn.Module):
    """Hierarchical aggregation of h heads, at model width.

    A node adds its inputs, so all have one width; which one is open in the paper. Here each head is first taken to
    model width C by its own slice of W_O, as in Eq. 4, and the tree runs there: the sum that runs through it is then
    the conventional multi-head output, and the tree only adds to it. A tree at head width d would force the result of
    the whole attention through d = C / h dimensions. Hidden layers have width C.

    Args:
        num_heads: number of heads h.
        embed_dim: model width C.
    """

    def __init__(self, *, num_heads: int, embed_dim: int):
        super().__init__()
        self.num_heads = num_heads
        self.lift = nn.Linear(embed_dim, embed_dim, bias=False)  # W_O: C columns for each head's d
        nn.init.xavier_uniform_(self.lift.weight)
        self.tree = HierarchicalAggregation(num_inputs=num_heads, width=embed_dim, hidden_dim=embed_dim)

    def forward(self, heads: Tensor) -> Tensor:
        """(..., h d), the heads side by side -> (..., C)."""
        weights = self.lift.weight.chunk(self.num_heads, dim=1)
        lifted: List[Tensor] = []
        for head, weight in zip(heads.chunk(self.num_heads, dim=-1), weights):
            lifted.append(nn.functional.linear(head, weight))
        return self.tree(lifted)


class IdentityProjection(nn.Module):
    """Stands where fairseq's attention expects ``out_proj``, and hands the heads on side by side.

    Args:
        embed_dim: model width C.
    """

    weight: Tensor

    def __init__(self, embed_dim: int):
        super().__init__()
        # torch's attention function reads the weight; it is nothing to learn or to save.
        self.register_buffer("weight", torch.eye(embed_dim), persistent=False)
        self.bias: Optional[Tensor] = None

    def forward(self, x: Tensor) -> Tensor:
        """Returns x."""
        return x


@compat.scriptable_attention
class ComposedAttention(MultiheadAttention):
    """fairseq's multi-head attention whose heads are composed by more than one linear map.

    ``out_proj`` may have any width: both of fairseq's code paths, torch's fused function in training and the
    step-by-step one in incremental decoding, apply it to the heads side by side and return the result, from which
    ``head_composition`` makes the output. (NI paper, multi-head composition in place of Eq. 4.)

    Args:
        *args: as for fairseq's ``MultiheadAttention``.
        out_proj: takes the place of fairseq's.
        head_composition: maps what ``out_proj`` gives to (..., C).
        **kwargs: as for fairseq's ``MultiheadAttention``.
    """

    def __init__(self, *args: Any, out_proj: nn.Module, head_composition: nn.Module, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.out_proj = out_proj
        self.head_composition = head_composition

    attend = compat.renamed(MultiheadAttention.forward, "attend")

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attends and composes the heads.

        Args:
            query: T x B x C.
            key: S x B x C; None where ``static_kv`` and a cache hold it.
            value: S x B x C; likewise.
            key_padding_mask: B x S, True for padding positions.
            incremental_state: the cache of incremental decoding.
            need_weights: also return the attention weights.
            static_kv: keys and values stay the same from step to step.
            attn_mask: T x S, added to the scores.
            before_softmax: return scores and values alone.
            need_head_weights: return the weights of each head.

        Returns:
            T x B x C, and the weights (B x T x S, or h x B x T x S) or None.
        """
        x, weights = self.attend(
            query,
            key,
            value,
            key_padding_mask,
            incremental_state,
            need_weights,
            static_kv,
            attn_mask,
            before_softmax,
            need_head_weights,
        )
        return (x if before_softmax else self.head_composition(x)), weights
