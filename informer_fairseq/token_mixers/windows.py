"""A convolution whose stride is its kernel, as products over windows; its backward pass writes each part once."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def convolve_windows(x: Tensor, weight: Tensor) -> Tensor:
    """N x T x C and k x C x C_out -> N x W x C_out, W = ceil(T / k) windows, the last one with its own tokens only.

    Autograd would zero a gradient as large as all of x, and one as large as the weight, for the full windows and again
    for the last one, and add them up; with one weight for all layers that is a good part of a short sentence's cost.
    """
    if torch.jit.is_scripting():
        return multiply_windows(x, weight)
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    return _Windows.apply(x, weight)


def multiply_windows(x: Tensor, weight: Tensor) -> Tensor:
    """The forward pass of :func:`convolve_windows`."""
    count, length, width = x.size(0), x.size(1), x.size(2)
    size = weight.size(0)
    kernel = weight.view(size * width, weight.size(2))  # k x C x C_out -> k C x C_out
    whole, rest = length // size, length % size
    parts = []
    if whole > 0:
        patches = x[:, : whole * size].reshape(count * whole, size * width)  # N x W k x C -> N W x k C
        parts.append(torch.mm(patches, kernel).view(count, whole, kernel.size(1)))
    if rest > 0:
        patches = x[:, whole * size :].reshape(count, rest * width)  # N x m x C -> N x m C
        parts.append(torch.mm(patches, kernel[: rest * width]).unsqueeze(1))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class _Windows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with torch.autocast(x.device.type, enabled=False):
            return multiply_windows(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, weight = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            by_x = _by_input(x, weight, gradient) if ctx.needs_input_grad[0] else None
            by_weight = _by_weight(x, weight, gradient) if ctx.needs_input_grad[1] else None
        return by_x, by_weight


def _by_input(x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    count, length, width = x.shape
    size = weight.size(0)
    kernel = weight.view(size * width, -1)
    whole, rest = length // size, length % size
    parts = []
    if whole > 0:
        by_patches = torch.mm(gradient[:, :whole].reshape(count * whole, -1), kernel.t())  # N W x k C
        parts.append(by_patches.view(count, whole * size, width))
    if rest > 0:
        by_patches = torch.mm(gradient[:, -1], kernel[: rest * width].t())  # N x m C
        parts.append(by_patches.view(count, rest, width))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _by_weight(x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    count, length, width = x.shape
    size = weight.size(0)
    whole, rest = length // size, length % size
    by_weight = torch.empty_like(weight)
    rows = by_weight.view(size * width, -1)  # k C x C_out
    if whole > 0:
        patches = x[:, : whole * size].reshape(count * whole, -1)  # N W x k C
        torch.mm(patches.t(), gradient[:, :whole].reshape(count * whole, -1), out=rows)
    if rest > 0:
        patches = x[:, whole * size :].reshape(count, -1)  # N x m C
        if whole > 0:
            rows[: rest * width].addmm_(patches.t(), gradient[:, -1])
        else:
            torch.mm(patches.t(), gradient[:, -1], out=rows[: rest * width])
            rows[rest * width :].zero_()
    return by_weight
