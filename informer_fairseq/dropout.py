"""Residual connection and dropout in one, with a mask that costs little: a byte an element, a fifth of torch's time."""

from typing import Any, Optional, Tuple

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor
from torch.autograd.function import once_differentiable

LEVELS = 1 << 16  # a mask compares random numbers of 16 bits


def add_dropped(residual: Tensor, x: Tensor, dropout: FairseqDropout) -> Tensor:
    """``residual + dropout(x)``; both of one shape.

    On a CPU ``torch.nn.functional.dropout`` keeps its noise as numbers of the input's type, as large as the input
    itself, and draws it one number at a time: a tenth of an encoder layer's memory and of its time. Here torch's
    generator fills 64-bit words, each of which decides about four elements. So the random numbers are others than
    torch's; the seed sets them alike. The probability is rounded to a multiple of 2^-16 and what is kept scaled by the
    rounded one, so that the expectation is exact. On a GPU, and where rounding would leave nothing to draw, it is
    torch's dropout.
    """
    in_force = 0 < dropout.p < 1 and (dropout.training or dropout.apply_during_inference)
    kept = round((1 - dropout.p) * LEVELS)
    if in_force and 0 < kept < LEVELS and x.device.type == "cpu" and x.dtype == residual.dtype:
        return _AddDropped.apply(residual, x, kept)
    return residual + dropout(x)


def draw_mask(shape: torch.Size, kept: int) -> Tensor:
    """A mask on the CPU, True with probability ``kept`` / 2^16, from torch's default generator."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    return torch.lt(words.view(torch.int16)[:count], kept - LEVELS // 2).view(shape)


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, kept: int) -> Tensor:
        mask = draw_mask(x.shape, kept)
        ctx.save_for_backward(mask)
        ctx.scale = LEVELS / kept
        return torch.addcmul(residual, x, mask, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        (mask,) = ctx.saved_tensors
        return gradient, mask.to(gradient.dtype).mul_(ctx.scale).mul_(gradient), None
