"""Convolutional low-rank self-attention: keys and values are compressed by a strided convolution and max-pooling."""

import math
from typing import Any, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from informer_fairseq.padding import check_length
from informer_fairseq.token_mixers.reduced_attention import ReducedSelfAttention
from informer_fairseq.token_mixers.windows import convolve_windows


class ConvolutionalProjection(nn.Module):
    """Convolution over positions with kernel = stride = n / r, max-pooling, Leaky-ReLU: n -> r -> r / pool slots.

    Section 4.3 of the Informer paper. As the stride equals the kernel, the convolution is one matrix product over
    windows of k = n / r tokens; windows without tokens are not computed: their output is the bias alone. Leaky-ReLU is
    monotonic and commutes with the maximum, so it runs last, on the fewest elements.

    The weight is kept as k x C_in x C_out (``torch.nn.Conv1d`` holds C_out x C_in x k): the first m taps, all that a
    window of m tokens needs, are then one contiguous block of the matrix.

    Args:
        embed_dim: model width C, both in and out.
        fixed_length: the largest source length n; divisible by ``reduced_length``.
        reduced_length: number of windows r; divisible by ``pool_size``.
        pool_size: windows that share a slot.

    Raises:
        ValueError: r is not in 1..n, n not divisible by r, or r not by the pool.
    """

    def __init__(self, *, embed_dim: int, fixed_length: int, reduced_length: int, pool_size: int):
        super().__init__()
        if not 1 <= reduced_length <= fixed_length:
            raise ValueError(f"reduced length {reduced_length} is not between 1 and the fixed length {fixed_length}")
        if fixed_length % reduced_length != 0:
            raise ValueError(f"fixed length {fixed_length} is not divisible by the reduced length {reduced_length}")
        if pool_size < 1 or reduced_length % pool_size != 0:
            raise ValueError(f"reduced length {reduced_length} is not divisible by the pool size {pool_size}")
        self.embed_dim = embed_dim
        self.fixed_length = fixed_length
        self.kernel_size = fixed_length // reduced_length
        self.pool_size = pool_size
        self.num_slots = reduced_length // pool_size
        self.positions_per_slot = self.kernel_size * pool_size
        self.weight = nn.Parameter(torch.empty(self.kernel_size, embed_dim, embed_dim))
        self.bias = nn.Parameter(torch.empty(embed_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """``torch.nn.Conv1d``'s initialisation: uniform in +-1/sqrt(C k)."""
        bound = 1 / math.sqrt(self.embed_dim * self.kernel_size)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Compresses sentences whose padded positions are zero.

        Args:
            x: N x T x C, zero at padded positions, T at most n.

        Returns:
            N x S x C: the slots that cover the T positions and, unless these are all there are, one more for the
            ``empty_slots(T)`` slots behind them, which all equal Leaky-ReLU of the bias.
        """
        windows = convolve_windows(x, self.weight)  # N x W x C, without bias
        used = -(-windows.size(1) // self.pool_size)
        last = 1 if used < self.num_slots else 0
        # A window without tokens is zero here, and so is the missing partner of the last window in its slot.
        missing = (used + last) * self.pool_size - windows.size(1)
        windows = F.pad(windows, (0, 0, 0, missing))
        slots = windows.view(x.size(0), used + last, self.pool_size, self.embed_dim).amax(dim=2)
        return F.leaky_relu(slots + self.bias)

    def empty_slots(self, length: int) -> int:
        """How many of the r / pool slots cover none of ``length`` positions."""
        return self.num_slots - -(-length // self.positions_per_slot)


class ConvolutionalSelfAttention(ReducedSelfAttention):
    """Self-attention over r / pool slots made by :class:`ConvolutionalProjection` (Informer paper, section 4.3).

    ``K' = LeakyReLU(pool(conv(X W_K + b_K)))``, likewise the values, before the heads are split. A slot that covers no
    token stays, unless ``drop_null_slots``: it is what a query attends to when it attends to nothing. Cost per token:
    4 C^2 for the linear maps, 2 C^2 to compress, 2 (r / pool) C for scores and values.

    Args:
        embed_dim: model width C.
        num_heads: number of heads h.
        projection: compresses the keys and, without ``value_projection``, the values as well.
        value_projection: the values' own projection; None to share the keys'.
        drop_null_slots: let no query attend to a slot that covers no token of its sentence.
        **attention: ``dropout``, ``out_proj`` and ``head_composition``, as for :class:`ReducedSelfAttention`.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        projection: ConvolutionalProjection,
        value_projection: Optional[ConvolutionalProjection] = None,
        drop_null_slots: bool = False,
        **attention: Any,
    ):
        super().__init__(embed_dim=embed_dim, num_heads=num_heads, **attention)
        self.drop_null_slots = drop_null_slots
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
        length, batch = x.size(0), x.size(1)
        check_length(length, self.projection.fixed_length)
        x = x.transpose(0, 1).contiguous()  # T x B x C -> B x T x C
        uncompressed = self.keys_and_values(x, padding_mask)  # 2 x B x T x C
        if self.value_projection is None:
            slots = self.projection(uncompressed.view(2 * batch, length, self.embed_dim))
            slots = slots.view(2, batch, -1, self.embed_dim)
            keys, values = slots[0], slots[1]
        else:
            keys = self.projection(uncompressed[0])
            values = self.value_projection(uncompressed[1])
        mixed = self.attend(x, keys, values, self.slot_scores(x, keys.size(1), padding_mask))
        return mixed.transpose(0, 1)  # B x T x C -> T x B x C

    def slot_scores(self, x: Tensor, slots: int, padding_mask: Optional[Tensor]) -> Optional[Tensor]:
        """What is added to the scores of the projection's ``slots`` slots (see ``attend``): counts, or a mask."""
        length = x.size(1)
        if self.drop_null_slots:
            lengths = torch.full((x.size(0),), length, device=x.device)
            if padding_mask is not None:
                # A sentence of padding alone keeps its first slot, so that its softmax is finite.
                lengths = padding_mask.logical_not().sum(dim=1).clamp(min=1)
            first = torch.arange(slots, device=x.device) * self.projection.positions_per_slot
            null = first >= lengths.view(-1, 1, 1, 1)  # B x 1 x 1 x S
            return torch.zeros(null.shape, dtype=x.dtype, device=x.device).masked_fill(null, float("-inf"))
        empty = self.projection.empty_slots(length)
        if empty < 2:
            return None
        scores = x.new_zeros(slots)
        scores[-1] = math.log(empty)
        return scores

    def keys_and_values(self, x: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
        """B x T x C -> 2 x B x T x C: ``X W_K + b_K`` and ``X W_V + b_V``, zero at padded positions."""
        batch, length = x.size(0), x.size(1)
        weights = torch.stack([self.k_proj.weight, self.v_proj.weight]).transpose(1, 2)  # 2 x C_in x C_out
        biases = torch.stack([self.k_proj.bias, self.v_proj.bias]).unsqueeze(1)  # 2 x 1 x C
        both = x.view(1, batch * length, self.embed_dim).expand(2, -1, -1)  # 2 x B T x C
        uncompressed = torch.baddbmm(biases, both, weights)  # 2 x B T x C
        if padding_mask is not None:
            # The biases and layer norms filled the padded positions; the convolution must not see them.
            uncompressed = uncompressed.masked_fill_(padding_mask.reshape(1, batch * length, 1), 0.0)
        return uncompressed.view(2, batch, length, self.embed_dim)
