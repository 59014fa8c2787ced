"""Dropout that keeps a byte an element for the backward pass on a CPU, where torch keeps a number."""

from typing import Any, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout
from torch import Tensor
from torch.autograd.function import once_differentiable


class DropoutByMask(FairseqDropout):
    """fairseq's dropout: equal outputs, random numbers and gradients.

    On a CPU ``torch.nn.functional.dropout`` keeps its noise as numbers of the input's type, as large as the input
    itself; with the mask alone an encoder layer saves a tenth of its memory. On a GPU torch keeps the mask as it is.
    """

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drops elements of x (any shape) with probability p and scales the rest by 1 / (1 - p)."""
        if self.p == 0 or not (self.training or self.apply_during_inference):
            return x
        if torch.jit.is_scripting() or x.device.type != "cpu" or inplace:
            return F.dropout(x, self.p, True, inplace)
        return _DropByMask.apply(x, float(self.p))


class _DropByMask(torch.autograd.Function):
    """``torch.native_dropout``, whose own backward pass takes twice as long on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        out, mask = torch.native_dropout(x, p, True)
        ctx.save_for_backward(mask)
        ctx.p = p
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        kept = mask.to(gradient.dtype).mul_(1 / (1 - ctx.p) if ctx.p < 1 else 0.0)
        return kept.mul_(gradient), None
