"""Output projection and label-smoothed loss in one, a chunk of rows at a time."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

# In float16, p - y is multiplied by this before it is rounded: probabilities of 1e-7 would be lost otherwise.
_HALF_SCALE = 1024.0


class ChunkedSmoothedLoss(torch.autograd.Function):
    """Sum over rows of the label-smoothed loss of ``softmax(x W^T + b)``, without ever holding all logits.

    With V types, ``e = epsilon / (V - 1)`` and p the softmax, a row's loss is ``(1 - epsilon - e) nll + e sum(-log p)``
    as in fairseq, and its gradient by the logits ``p - e - (1 - epsilon - e) y`` with y one at the target. So the
    gradients of x, W and b are made in the same pass, while a chunk's logits are at hand, and only scaled in backward.
    A chunk's logits live in one buffer, in which they become probabilities and then the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor, epsilon: float, rows: int
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Returns loss, negative log-likelihood and number of right rows, each a sum.

        Args:
            ctx: autograd's context.
            x: N x C.
            weight: V x C.
            bias: V; None if there is none.
            target: N indices below V.
            epsilon: label smoothing.
            rows: of a chunk.
        """
        needs = [needed and given is not None for needed, given in zip(ctx.needs_input_grad, (x, weight, bias))]
        gradients = [
            torch.zeros_like(given, dtype=_wide(given.dtype)) if need and given is not None else None
            for need, given in zip(needs, (x, weight, bias))
        ]
        totals = torch.zeros(3, dtype=_wide(x.dtype), device=x.device)
        for start in range(0, x.size(0), rows):
            part = slice(start, start + rows)
            logits = F.linear(x[part], weight, bias).to(totals.dtype)
            totals += _turn_into_gradient(logits, target[part], epsilon)
            if any(needs):
                _add_gradients(gradients, part, logits, x[part], weight)
        ctx.save_for_backward(*(gradient for gradient in gradients if gradient is not None))
        ctx.needs = needs
        loss, nll, right = totals.unbind()
        ctx.mark_non_differentiable(nll, right)
        return loss, nll, right

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Scales the gradients of the forward pass by the loss's own."""
        saved = iter(ctx.saved_tensors)
        scaled = [(next(saved) * outer[0]) if need else None for need in ctx.needs]
        return (*scaled, None, None, None)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What softmax and sums run in: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _turn_into_gradient(logits: Tensor, target: Tensor, epsilon: float) -> Tensor:
    """Sums of one chunk; its ``logits`` (n x V) become the gradient of the loss by them.

    Returns:
        Loss, negative log-likelihood, number of rows whose largest logit is the target's.
    """
    types = logits.size(1)
    smoothing = epsilon / (types - 1)
    column = target.unsqueeze(1)
    right = logits.argmax(dim=1).eq(target).sum()
    normalizer = logits.logsumexp(dim=1, keepdim=True)
    nll = (normalizer - logits.gather(1, column)).sum()
    smooth = types * normalizer.sum() - logits.sum()
    logits.sub_(normalizer).exp_().sub_(smoothing)
    logits.scatter_add_(1, column, logits.new_full((1, 1), epsilon + smoothing - 1).expand_as(column))
    return torch.stack([(1 - epsilon - smoothing) * nll + smoothing * smooth, nll, right.to(nll.dtype)])


def _add_gradients(gradients: list, part: slice, by_logits: Tensor, x: Tensor, weight: Tensor) -> None:
    """Adds one chunk's share to the gradients of x, weight and bias."""
    by_x, by_weight, by_bias = gradients
    scale = 1.0
    if by_bias is not None:
        by_bias += by_logits.sum(dim=0)
    if x.dtype == torch.float16:
        scale = _HALF_SCALE
        by_logits = by_logits * scale
    by_logits = by_logits.to(x.dtype)
    if by_x is not None:
        by_x[part] = (by_logits @ weight).to(by_x.dtype) / scale
    if by_weight is not None:
        if x.dtype == by_weight.dtype:
            by_weight.addmm_(by_logits.t(), x)
        else:
            by_weight += (by_logits.t() @ x).to(by_weight.dtype) / scale


def chunked_smoothed_loss(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor, *, epsilon: float, rows: int
) -> Tuple[Tensor, Tensor, Tensor]:
    """Label-smoothed loss of a linear output layer, see :class:`ChunkedSmoothedLoss`.

    Args:
        x: N x C features.
        weight: V x C.
        bias: V, or None.
        target: N indices below V, without padding.
        epsilon: label smoothing, 0 for none.
        rows: of a chunk; the memory taken is rows x V numbers in float32.

    Returns:
        Sums of the loss (differentiable), of the negative log-likelihood (nats) and of the rows whose most probable
        type is the target.

    Raises:
        ValueError: ``rows`` is below 1.
    """
    if rows < 1:
        raise ValueError(f"chunks of {rows} rows: give 1 or more")
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(kind), weight.to(kind)
        bias = None if bias is None else bias.to(kind)
    with torch.autocast(x.device.type, enabled=False):  # the gradients' products keep the types they are given
        return ChunkedSmoothedLoss.apply(x, weight, bias, target, epsilon, rows)
