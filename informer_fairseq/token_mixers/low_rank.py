"""Low-rank self-attention (Linformer): keys and values are r linear combinations of the positions."""

import math
from typing import Any, Optional

import torch
import torch.nn as nn
from torch import Tensor

from informer_fairseq.padding import check_length
from informer_fairseq.token_mixers.reduced_attention import ReducedSelfAttention


class LowRankProjection(nn.Module):
    """Maps up to n positions onto r slots with one matrix, E in R^{r x n}, without bias.

    Column i of E always meets token i, and padded positions count as zero, so a sentence gives the same slots in any
    batch. Only the first T columns are multiplied: what lies beyond the batch's longest sentence is zero by definition.

    Args:
        fixed_length: the largest source length n.
        reduced_length: number of slots r.

    Raises:
        ValueError: r is not in 1..n.
    """

    def __init__(self, *, fixed_length: int, reduced_length: int):
        super().__init__()
        if not 1 <= reduced_length <= fixed_length:
            raise ValueError(f"reduced length {reduced_length} is not between 1 and the fixed length {fixed_length}")
        self.fixed_length = fixed_length
        self.weight = nn.Parameter(torch.empty(reduced_length, fixed_length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform with variance 1/n, the initialisation of the Linformer paper's authors."""
        bound = math.sqrt(3 / self.fixed_length)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
        """B x T x C and the padding mask (B x T, True for padding positions) -> B x r x C."""
        # bmm, not matmul: that would copy x to fold the batch into one product.
        weight = self.weight[:, : x.size(1)].unsqueeze(0).expand(x.size(0), -1, -1)  # B x r x T
        if padding_mask is not None:
            # Zero the columns of E that meet padding, not the padding itself: r numbers a position instead of C.
            weight = weight.masked_fill(padding_mask.unsqueeze(1), 0.0)
        return torch.bmm(weight, x)


class LowRankSelfAttention(ReducedSelfAttention):
    """Linformer's self-attention: ``softmax(Q (E X W_K)^T / sqrt(d)) (F X W_V)``.

    Wang et al. 2020 ("Linformer: Self-Attention with Linear Complexity"), Eq. 7, as used in section 4.2 of the
    Informer paper. The input is compressed first and projected second, which is the same map up to where the bias
    enters and costs r instead of T rows in both projections. Cost per token: 2 C^2 + 2 r C^2 / T for the projections,
    r C to compress (twice with a projection of its own for the values), 2 r C for scores and values.

    Args:
        embed_dim: model width C.
        num_heads: number of heads h; they share the projection.
        projection: maps positions to slots, for the keys and, without ``value_projection``, for the values as well.
        value_projection: the values' own projection (F); None to share the keys' (E).
        **attention: ``dropout``, ``out_proj`` and ``head_composition``, as for :class:`ReducedSelfAttention`.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        projection: LowRankProjection,
        value_projection: Optional[LowRankProjection] = None,
        **attention: Any,
    ):
        super().__init__(embed_dim=embed_dim, num_heads=num_heads, **attention)
        self.projection = projection
        self.value_projection = value_projection

    def forward(self, x: Tensor, padding_mask: Optional[Tensor] = None) -> Tensor:
        """Mixes the positions of each sentence.

        Args:
            x: T x B x C, sentences at the left edge (padding behind them).
            padding_mask: B x T, True for padding positions; None if there are none.

        Returns:
            T x B x C. What stands at padded positions is of no meaning.

        Raises:
            ValueError: T exceeds the projection's fixed length.
        """
        check_length(x.size(0), self.projection.fixed_length)
        x = x.transpose(0, 1).contiguous()  # T x B x C -> B x T x C
        for_keys = self.projection(x, padding_mask)  # B x r x C
        for_values = for_keys
        if self.value_projection is not None:
            for_values = self.value_projection(x, padding_mask)
        mixed = self.attend(x, self.k_proj(for_keys), self.v_proj(for_values))
        return mixed.transpose(0, 1)  # B x T x C -> T x B x C
