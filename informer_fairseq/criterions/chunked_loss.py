"""Output projection and label-smoothed loss in one, a chunk of rows at a time."""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# In float16, p - y is multiplied by this before it is rounded: probabilities of 1e-7 would be lost otherwise.
_HALF_SCALE = 1024.0


class ChunkedSmoothedLoss(torch.autograd.Function):
    """Sum over rows of the label-smoothed loss of ``softmax(x W^T + b)``, without ever holding all logits.

    With V types, ``e = epsilon / (V - 1)``, p the softmax and Z its normalizer, a row's loss is ``(1 - epsilon - e) nll
    + e sum(-log p)`` as in fairseq, and its gradient by the logits ``p - e - (1 - epsilon - e) y`` with y one at the
    target. So the gradients of x, W and b are made in the same pass, while a chunk's logits are at hand, and only
    scaled in backward.

    What a chunk costs beside its three products is passes over its V columns, so few are made: the logits' sum and the
    gradient's constant e need none (they are products with the sum of the rows of W, and of x), and in single precision
    the division by Z is left to the products' small sides.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        target: Tensor,
        epsilon: float,
        rows: int,
        count_right: bool,
    ) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """Returns loss, negative log-likelihood and number of right rows, each a sum.

        Args:
            ctx: autograd's context.
            x: N x C.
            weight: V x C.
            bias: V; None if there is none.
            target: N indices below V.
            epsilon: label smoothing.
            rows: of a chunk.
            count_right: else None stands in the place of that number.
        """
        wide, types = _wide(x.dtype), weight.size(0)
        smoothing = epsilon / (types - 1)
        kept = 1 - epsilon - smoothing  # the target's share of the loss
        needs = [needed and given is not None for needed, given in zip(ctx.needs_input_grad, (x, weight, bias))]
        gradients = [
            torch.zeros_like(given, dtype=wide) if need and given is not None else None
            for need, given in zip(needs, (x, weight, bias))
        ]
        buffer = x.new_empty(min(rows, x.size(0)), types, dtype=wide)
        nll, normalizers = (torch.zeros((), dtype=wide, device=x.device) for _ in range(2))
        right = torch.zeros((), dtype=torch.long, device=x.device)
        for start in range(0, x.size(0), rows):
            part = slice(start, start + rows)
            column = target[part].unsqueeze(1)
            logits = _write_logits(buffer, x[part], weight, bias)
            if count_right:
                right += logits.argmax(dim=1, keepdim=True).eq(column).sum()
            of_target = logits.gather(1, column)
            largest = logits.amax(dim=1, keepdim=True)
            total = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            normalizer = total.log() + largest
            nll += (normalizer - of_target).sum()
            normalizers += normalizer.sum()
            if any(needs):
                logits.scatter_add_(1, column, -kept * total)
                _add_gradients(gradients, part, logits, total, x[part], weight)
        sum_of_x, sum_of_weight = x.sum(dim=0, dtype=wide), weight.sum(dim=0, dtype=wide)
        sum_of_logits = sum_of_x @ sum_of_weight
        if bias is not None:
            sum_of_logits = sum_of_logits + x.size(0) * bias.sum(dtype=wide)
        for gradient, amount in zip(gradients, (sum_of_weight, sum_of_x, x.size(0))):
            if gradient is not None:
                gradient -= smoothing * amount
        ctx.save_for_backward(*(gradient for gradient in gradients if gradient is not None))
        ctx.needs = needs
        loss = kept * nll + smoothing * (types * normalizers - sum_of_logits)
        ctx.mark_non_differentiable(nll, right)
        return loss, nll, right if count_right else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Scales the gradients of the forward pass by the loss's own."""
        saved = iter(ctx.saved_tensors)
        scaled = [(next(saved) * outer[0]) if need else None for need in ctx.needs]
        return (*scaled, None, None, None, None)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What softmax and sums run in: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _write_logits(buffer: Tensor, x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """``x W^T + b`` (n x V) in the first rows of the buffer."""
    logits = buffer[: x.size(0)]
    if x.dtype != buffer.dtype:
        return logits.copy_(F.linear(x, weight, bias))
    if bias is None:
        return torch.mm(x, weight.t(), out=logits)
    return torch.addmm(bias, x, weight.t(), out=logits)


def _add_gradients(gradients: list, part: slice, by_logits: Tensor, total: Tensor, x: Tensor, weight: Tensor) -> None:
    """Adds one chunk's share to the gradients of x, weight and bias, but for the smoothing's constant.

    ``by_logits`` (n x V) divided by ``total`` (n x 1) is ``p - (1 - epsilon - e) y``.
    """
    by_x, by_weight, by_bias = gradients
    inverse = total.reciprocal()
    if by_bias is not None:
        by_bias += (inverse.t() @ by_logits).squeeze(0)
    if x.dtype == by_logits.dtype:
        if by_x is not None:
            by_x[part] = (by_logits @ weight) * inverse
        if by_weight is not None:
            by_weight.addmm_(by_logits.t(), x * inverse)
        return
    # Half precision: numbers of the size of Z would leave its range.
    scale = _HALF_SCALE if x.dtype == torch.float16 else 1.0
    rounded = (by_logits * (inverse * scale)).to(x.dtype)
    if by_x is not None:
        by_x[part] = (rounded @ weight).to(by_x.dtype) / scale
    if by_weight is not None:
        by_weight += (rounded.t() @ x).to(by_weight.dtype) / scale


def chunked_smoothed_loss(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    target: Tensor,
    *,
    epsilon: float,
    rows: int,
    count_right: bool = False,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Label-smoothed loss of a linear output layer, see :class:`ChunkedSmoothedLoss`.

    Args:
        x: N x C features.
        weight: V x C.
        bias: V, or None.
        target: N indices below V, without padding.
        epsilon: label smoothing, 0 for none.
        rows: of a chunk; the memory taken is rows x V numbers in float32.
        count_right: also count the rows whose most probable type is the target, which takes a pass more.

    Returns:
        Sums of the loss (differentiable) and of the negative log-likelihood (nats), and the number of right rows, or
        None.

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
        return ChunkedSmoothedLoss.apply(x, weight, bias, target, epsilon, rows, count_right)
