"""Residual connection and dropout in one, keeping a byte an element for the backward pass on a CPU."""

from typing import Any, Optional, Tuple

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor
from torch.autograd.function import once_differentiable


def add_dropped(residual: Tensor, x: Tensor, dropout: FairseqDropout) -> Tensor:
    """``residual + dropout(x)`` with the same random numbers; both of one shape.

    On a CPU ``torch.nn.functional.dropout`` keeps its noise as numbers of the input's type, as large as the input
    itself: with the mask alone an encoder layer saves a tenth of its memory, and the fused sum saves two passes. On a
    GPU torch keeps the mask as it is.
    """
    in_force = 0 < dropout.p < 1 and (dropout.training or dropout.apply_during_inference)
    if in_force and x.device.type == "cpu" and x.dtype == residual.dtype:
        return _AddDropped.apply(residual, x, float(dropout.p))
    return residual + dropout(x)


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, p: float) -> Tensor:
        noise = torch.empty_like(x).bernoulli_(1 - p)  # as torch's dropout draws it
        ctx.save_for_backward(noise.to(torch.bool))
        ctx.scale = 1 / (1 - p)
        return torch.addcmul(residual, x, noise, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        (mask,) = ctx.saved_tensors
        return gradient, mask.to(gradient.dtype).mul_(ctx.scale).mul_(gradient), None
