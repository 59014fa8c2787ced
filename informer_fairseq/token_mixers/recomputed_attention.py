"""Attention over few slots that keeps little for the backward pass, with dropout or without.

torch's fused attention does so without dropout; with it, it falls back on a CPU to products that keep the weights, the
noise and their product. Over a few slots the weights cost little to compute again.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def heads_by_sentence(x: Tensor, batch: int) -> Tensor:
    """h x B S x N -> B x h S x N."""
    split = x.view(x.size(0), batch, -1, x.size(2))
    return split.transpose(0, 1).reshape(batch, -1, x.size(2))


def folded_weights(x: Tensor, folded_keys: Tensor, offset: Tensor, heads: int) -> Tensor:
    """Attention weights of queries x (B x T x C) over folded keys (B x h S x C), offset B x 1 x h S: B x T x h x S."""
    logits = torch.baddbmm(offset, x, folded_keys.transpose(1, 2))
    return logits.view(x.size(0), x.size(1), heads, -1).softmax(dim=3)


def product_with_folded(weights: Tensor, values: Tensor, out_weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    """Weights (B x T x h x S) times folded values: values h x B S x d times out_weight h x d x N; B x T x N."""
    folded = heads_by_sentence(torch.bmm(values, out_weight), weights.size(0))
    if bias is None:
        return torch.bmm(weights.flatten(2), folded)
    return torch.baddbmm(bias.view(1, 1, -1), weights.flatten(2), folded)


class FoldedAttention(torch.autograd.Function):
    """``product_with_folded(dropout(folded_weights(...)), ...)``.

    Computed again in the backward pass: the folded values, which have h S rows of width N a sentence, more than its own
    T rows where T is short; and with dropout the weights, of which three forms would be kept otherwise.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        folded_keys: Tensor,
        offset: Tensor,
        values: Tensor,
        out_weight: Tensor,
        bias: Optional[Tensor],
        dropout: float,
    ) -> Tensor:
        """Shapes as above; ``dropout`` is the probability in force, 0 outside of training."""
        weights, mask = _drop(folded_weights(x, folded_keys, offset, values.size(0)), dropout)
        ctx.save_for_backward(x, folded_keys, offset, values, out_weight, weights if mask is None else None, mask)
        ctx.dropout, ctx.has_bias, ctx.autocast = dropout, bias is not None, _autocast_of(x)
        return product_with_folded(weights, values, out_weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of the six tensors, each in the type of its tensor."""
        x, folded_keys, offset, values, out_weight, weights, mask = ctx.saved_tensors
        batch, heads = x.size(0), values.size(0)
        with torch.autocast(**ctx.autocast):
            if weights is None:
                weights = folded_weights(x, folded_keys, offset, heads)
            dropped = _apply(mask, weights, ctx.dropout).flatten(2)  # B x T x h S
            folded = heads_by_sentence(torch.bmm(values, out_weight), batch)  # B x h S x N
            by_weights = _apply(mask, torch.bmm(gradient, folded.transpose(1, 2)).view_as(weights), ctx.dropout)
            by_folded = torch.bmm(dropped.transpose(1, 2), gradient)  # B x h S x N
            # B x h S x N -> h x B S x N
            by_folded = by_folded.view(batch, heads, -1, by_folded.size(2)).transpose(0, 1).flatten(1, 2)
            by_values = torch.bmm(by_folded, out_weight.transpose(1, 2))
            by_out_weight = torch.bmm(values.transpose(1, 2), by_folded)
            by_logits = _by_logits(by_weights, weights).flatten(2)  # B x T x h S
            by_x = torch.bmm(by_logits, folded_keys)
            by_folded_keys = torch.bmm(by_logits.transpose(1, 2), x)
            by_offset = by_logits.sum(dim=1, keepdim=True)
        by_bias = gradient.sum(dim=(0, 1)) if ctx.has_bias else None
        given = (x, folded_keys, offset, values, out_weight)
        made = (by_x, by_folded_keys, by_offset, by_values, by_out_weight)
        return (*(new.to(old.dtype) for new, old in zip(made, given)), by_bias, None)


class AttentionWithDropout(torch.autograd.Function):
    """``torch.nn.functional.scaled_dot_product_attention`` with dropout."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, scores: Tensor, dropout: float) -> Tensor:
        """B x h x T x d, B x h x S x d twice, scores (S, or B x 1 x 1 x S) added: B x h x T x d."""
        ctx.scale = queries.size(3) ** -0.5
        weights, mask = _drop(_weights(queries, keys, scores, ctx.scale), dropout)
        ctx.save_for_backward(queries, keys, values, scores, mask)
        ctx.dropout, ctx.autocast = dropout, _autocast_of(queries)
        return torch.matmul(weights, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of queries, keys and values."""
        queries, keys, values, scores, mask = ctx.saved_tensors
        with torch.autocast(**ctx.autocast):
            weights = _weights(queries, keys, scores, ctx.scale)
            dropped = _apply(mask, weights, ctx.dropout)
            by_values = torch.matmul(dropped.transpose(2, 3), gradient)
            by_weights = _apply(mask, torch.matmul(gradient, values.transpose(2, 3)), ctx.dropout)
            by_logits = _by_logits(by_weights, weights) * ctx.scale
            by_queries = torch.matmul(by_logits, keys)
            by_keys = torch.matmul(by_logits.transpose(2, 3), queries)
        made = zip((by_queries, by_keys, by_values), (queries, keys, values))
        return (*(new.to(old.dtype) for new, old in made), None, None)


def _weights(queries: Tensor, keys: Tensor, scores: Tensor, scale: float) -> Tensor:
    return torch.matmul(queries * scale, keys.transpose(2, 3)).add_(scores).softmax(dim=3)


def _drop(weights: Tensor, dropout: float) -> Tuple[Tensor, Optional[Tensor]]:
    """The weights after dropout, and the mask: True where a weight is kept; None without dropout."""
    if dropout == 0:
        return weights, None
    return torch.native_dropout(weights, dropout, True)


def _apply(mask: Optional[Tensor], x: Tensor, dropout: float) -> Tensor:
    """What the dropout of that mask makes of x; also its gradient's way back."""
    if mask is None:
        return x
    return x * mask.to(x.dtype).mul_(1 / (1 - dropout) if dropout < 1 else 0.0)


def _by_logits(by_weights: Tensor, weights: Tensor) -> Tensor:
    """Through the softmax over the last dimension."""
    return torch.ops.aten._softmax_backward_data(by_weights.to(weights.dtype), weights, 3, weights.dtype)


def _autocast_of(x: Tensor) -> Dict[str, Any]:
    """Arguments of ``torch.autocast`` that bring back its present state, which a backward pass does not see."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return {"device_type": kind, "enabled": False}
    return {"device_type": kind, "enabled": True, "dtype": torch.get_autocast_dtype(kind)}
