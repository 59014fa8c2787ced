"""Low-rank bilinear pooling: every neuron of N vectors meets every other one in a product."""

import math
from typing import List, Optional

import torch
import torch.nn as nn
from torch import Tensor

from informer_fairseq.compositions.scaled_concatenation import ScaledComposition


class BilinearInteraction(nn.Module):
    """``P^T (a (.) b)`` for the two factors a and b of low-rank bilinear pooling, both of width r.

    Precision. In float32, bfloat16 and float64 the product is taken as it stands. In float16 it would overflow where
    its factors do not (300 x 300): there b is brought to at most 1 at each position, the product taken in float32, and
    the scale given back behind P, whose own product stays in float16. So the result is finite wherever its true value
    can be written in float16, and likewise the gradients. This costs one maximum over r numbers and r float32 products
    a position; no matrix product is done in float32.

    Args:
        rank: width r of the factors.
        output_dim: width of the result.
    """

    def __init__(self, *, rank: int, output_dim: int):
        super().__init__()
        self.pool = nn.Linear(rank, output_dim, bias=False)  # P

    def forward(self, factors: Tensor) -> Tensor:
        """(..., 2 r), a before b -> (..., d_out)."""
        a, b = factors.chunk(2, dim=-1)
        if factors.dtype != torch.float16:
            return self.pool(a * b)
        b = b.float()
        # The scale divides b and multiplies the result, so it takes no part in the gradient.
        scale = b.detach().abs().amax(dim=-1, keepdim=True).clamp(min=1.0)
        product = a.float() * (b / scale)
        return self.pool(product.to(factors.dtype)) * scale.to(factors.dtype)


class LowRankBilinearPooling(ScaledComposition):
    """``P^T ((U^T R + u) (.) (V^T R + v))`` over the concatenation R of N vectors (NI paper, Eq. 9 to 11).

    The biases u and v are what appending ones to R amounts to: they add the first-order terms. Without them it is the
    paper's ablation "w/o first-order" (Eq. 10). No dropout, norm or nonlinearity. U and V are one linear map of width
    2 r, ``factors``. Cost: (2 N d + d_out) r multiply-adds a position; parameters: as many, and 2 r biases.

    Args:
        num_inputs: number of vectors N.
        input_dim: width d of each.
        output_dim: width d_out of the result.
        rank: r, the number of products that are pooled.
        first_order: keep the first-order terms.
        input_scale: R is multiplied by it, and U and V start divided by it; see :class:`ScaledConcatenation`.

    Raises:
        ValueError: a size is below 1.
    """

    def __init__(
        self,
        *,
        num_inputs: int,
        input_dim: int,
        output_dim: int,
        rank: int,
        first_order: bool = True,
        input_scale: float = 1.0,
    ):
        super().__init__(input_scale)
        if min(num_inputs, input_dim, output_dim) < 1:
            raise ValueError(f"cannot pool {num_inputs} vectors of width {input_dim} into width {output_dim}")
        if rank < 1:
            raise ValueError(f"rank {rank} is below 1")
        self.input_dim = input_dim
        self.rank = rank
        self.first_order = first_order
        self.factors = nn.Linear(num_inputs * input_dim, 2 * rank, bias=first_order)  # [U V]^T and [u v]
        self.interaction = BilinearInteraction(rank=rank, output_dim=output_dim)
        self.reset_parameters()

    def reader(self) -> nn.Linear:
        """The linear map that meets the concatenation: U and V."""
        return self.factors

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Starts as a linear map, ``P^T U^T R`` with the scale of a Xavier start: V = 0, v = 1, u = 0.

        P has orthonormal rows or columns, the identity where r = d_out. Without first order there is no v to hold the
        second factor at one: V starts at a fiftieth of U, so that inputs of some hundreds give results within float16.
        """
        self._reset_pool()
        output_dim = self.interaction.pool.out_features
        # P^T U^T has min(r, d_out) / d_out of the variance of U; Xavier's is 2 / (inputs + outputs).
        bound = math.sqrt(6 / (self.factors.in_features + output_dim) * max(1.0, output_dim / self.rank))
        nn.init.uniform_(self.factors.weight, -bound, bound)
        self.factors.weight[self.rank :] *= 0.02
        self.factors.weight /= self.concatenation.scale_version
        self._hold_second_factor_at_one()

    @torch.no_grad()
    def reset_parameters_plainly(self) -> None:
        """Xavier for all three matrices, zero biases."""
        for factor in self.factors.weight.chunk(2):
            nn.init.xavier_uniform_(factor)
        self.factors.weight /= self.concatenation.scale_version
        nn.init.xavier_uniform_(self.interaction.pool.weight)
        if self.first_order:
            nn.init.zeros_(self.factors.bias)

    @torch.no_grad()
    def select_last(self) -> None:
        """Starts as the identity on the last vector where r >= d; below that, as a projection of rank r.

        Without first order, as the last vector times Xavier-scaled combinations of all.
        """
        self.reset_parameters()
        self.factors.weight[self.rank :] *= 50
        self.factors.weight[: self.rank].zero_()
        pool = self.interaction.pool.weight  # P^T: d_out x r
        picked = pool.t()[:, : self.input_dim] / self.concatenation.scale_version
        self.factors.weight[: self.rank, -self.input_dim :] = picked
        self._hold_second_factor_at_one()

    def start_from_linear(self, weight: Tensor) -> None:
        """Starts as the linear map ``R -> weight R`` (d_out x N d); see the function of this name."""
        start_from_linear(self.factors, self.interaction.pool, weight / self.concatenation.scale_version)

    def _reset_pool(self) -> None:
        pool = self.interaction.pool.weight
        if pool.size(0) <= pool.size(1):
            nn.init.eye_(pool)
        else:
            nn.init.orthogonal_(pool)

    def _hold_second_factor_at_one(self) -> None:
        if self.first_order:
            self.factors.weight[self.rank :].zero_()
            self.factors.bias[: self.rank].zero_()
            self.factors.bias[self.rank :].fill_(1.0)

    def forward(self, inputs: List[Tensor]) -> Tensor:
        """N tensors (..., d) -> (..., d_out).

        One product over the concatenation: a sum of N products over slices took 1.05 (2,000 rows) to 2.7 (32 rows)
        times as long in training, and the same in inference (N 6, d 512, r 512, CPU).
        """
        return self.interaction(self.factors(self.concatenation(inputs)))


@torch.no_grad()
def start_from_linear(factors: nn.Linear, pool: nn.Linear, weight: Tensor, bias: Optional[Tensor] = None) -> None:
    """Makes pooling with first-order terms the linear map ``R -> weight R + bias``.

    Exactly so where r >= d_out: ``U = weight, u = bias, V = 0, v = 1, P = I``. Below that it becomes the best
    approximation of rank r (singular value decomposition), the bias being the column that meets the appended one.

    Args:
        factors: U and V in one map, with biases.
        pool: P.
        weight: d_out x N d.
        bias: d_out; None for zero.

    Raises:
        ValueError: ``factors`` has no biases, so there are no first-order terms to hold a linear map.
    """
    if factors.bias is None:
        raise ValueError("pooling without first-order terms cannot start from a linear map")
    width, rank = weight.size(0), pool.in_features
    if bias is None:
        bias = weight.new_zeros(width)
    factors.weight.zero_()
    factors.bias[:rank].zero_()
    factors.bias[rank:].fill_(1.0)
    if rank >= width:
        nn.init.eye_(pool.weight)
        factors.weight[:width], factors.bias[:width] = weight, bias
        return
    left, values, right = torch.linalg.svd(torch.cat([weight, bias.unsqueeze(1)], dim=1).double(), full_matrices=False)
    first = values[:rank].unsqueeze(1) * right[:rank]
    pool.weight.copy_(left[:, :rank])
    factors.weight[:rank].copy_(first[:, :-1])
    factors.bias[:rank].copy_(first[:, -1])
