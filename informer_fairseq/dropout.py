"""Dropout whose mask costs little: a byte an element, a fifth of torch's time; with a residual connection too."""

from typing import Any, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from fairseq.modules import FairseqDropout
from torch import Tensor
from torch.autograd.function import once_differentiable

LEVELS = 1 << 16  # a mask compares random numbers of 16 bits


class FastDropout(FairseqDropout):
    """fairseq's dropout with a cheaper mask on a CPU.

    There ``torch.nn.functional.dropout`` keeps its noise as numbers of the input's type, as large as the input itself,
    and draws it one number at a time: a tenth of an encoder layer's memory and of its time. Here torch's generator
    fills 64-bit words, each of which decides about four elements. So the random numbers are others than torch's; the
    seed sets them alike. The probability is rounded to a multiple of 2^-16 and what is kept scaled by the rounded one,
    so that the expectation is exact. On a GPU, and where rounding would leave nothing to draw, it is torch's dropout.
    """

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drops numbers of x in training, or where the model keeps dropout in force; ``inplace`` asks for nothing."""
        if self.p <= 0 or not (self.training or self.apply_during_inference):
            return x
        if torch.jit.is_scripting():
            return F.dropout(x, p=self.p, training=True)
        kept = _levels_kept(self, x)
        return F.dropout(x, p=self.p, training=True) if kept == 0 else _Dropped.apply(x, kept)


def use_fast_dropout(model: nn.Module) -> None:
    """Puts :class:`FastDropout` in the place of every dropout of fairseq's in a model."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is FairseqDropout:
                setattr(parent, name, FastDropout(child.p, child.module_name))


def add_dropped(residual: Tensor, x: Tensor, dropout: FairseqDropout) -> Tensor:
    """``residual + dropout(x)``, both of one shape, in one pass where :class:`FastDropout` has a mask of its own."""
    kept = _levels_kept(dropout, x)
    if kept > 0 and x.dtype == residual.dtype:
        return _AddDropped.apply(residual, x, kept)
    return residual + dropout(x)


def _levels_kept(dropout: FairseqDropout, x: Tensor) -> int:
    """Of 2^16 levels, those that keep a number; 0 where torch's dropout is to do it, or nothing is to be done."""
    in_force = 0 < dropout.p < 1 and (dropout.training or dropout.apply_during_inference)
    kept = round((1 - dropout.p) * LEVELS)
    return kept if in_force and kept < LEVELS and x.device.type == "cpu" else 0


def draw_mask(shape: torch.Size, kept: int) -> Tensor:
    """A mask on the CPU, True with probability ``kept`` / 2^16, from torch's default generator."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    return torch.lt(words.view(torch.int16)[:count], kept - LEVELS // 2).view(shape)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: int) -> Tensor:
        mask = draw_mask(x.shape, kept)
        ctx.save_for_backward(mask)
        ctx.scale = LEVELS / kept
        return _through(mask, x, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        (mask,) = ctx.saved_tensors
        return _through(mask, gradient, ctx.scale), None


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
        return gradient, _through(mask, gradient, ctx.scale), None


def _through(mask: Tensor, x: Tensor, scale: float) -> Tensor:
    return mask.to(x.dtype).mul_(x).mul_(scale)
