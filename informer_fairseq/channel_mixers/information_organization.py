"""Information organization: the Informer paper's module in place of the feed-forward."""

from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from informer_fairseq.padding import check_length


class InformationOrganization(nn.Module):
    """A small convolutional auto-encoder over the features, whose channels are the n positions.

    Section 4.4 of the Informer paper: ``Conv1d(n, n, k, stride k)`` takes the C features of each position to
    d = C / k, Leaky-ReLU, max-pooling by 2 gives the latent of d / 2, max-unpooling and ``ConvTranspose1d(n, n, k,
    stride k)`` lead back to C. The kernel k equals the number of heads, so that d is a head's width (the paper's prose
    says C / h; its parameter counts settle it). 2 (n^2 k + n) parameters; 2 n C multiply-adds per token.

    Both convolutions are matrix products, cut to the T positions that hold tokens: input channels beyond T are zero and
    output channels beyond T are not asked for, while all n hidden channels stay. Pooling and unpooling together keep
    the larger of each pair and zero the other (the first of two equal ones, as ``max_pool1d`` does): no indices, no
    scatter, deterministic on every device.

    Beyond the paper: as published, a token costs the more the larger n is. ``groups`` G > 1 lets positions exchange
    features within G neighbourhoods of n / G positions alone (grouped convolutions): 2 (n^2 k / G + n) parameters, and
    2 (n / G) C multiply-adds per token. Neighbourhoods without tokens are not computed.

    The parameters live in a ``Conv1d`` and a ``ConvTranspose1d`` of torch, with their shapes and initialisation.

    Args:
        fixed_length: the largest source length n.
        embed_dim: model width C.
        num_heads: h, the convolutions' kernel and stride; must divide C with an even quotient.
        groups: G; must divide n.

    Raises:
        ValueError: C is not divisible by h, C / h is odd (its pairs would not come out even), or n not divisible by G.
    """

    def __init__(self, *, fixed_length: int, embed_dim: int, num_heads: int, groups: int = 1):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads != 0:
            raise ValueError(f"width {embed_dim} is not divisible by {num_heads} heads")
        if (embed_dim // num_heads) % 2 != 0:
            raise ValueError(
                f"head width {embed_dim // num_heads} (width {embed_dim} by {num_heads} heads) is odd: "
                "information organization pools it in pairs"
            )
        if groups < 1 or fixed_length % groups != 0:
            raise ValueError(f"fixed length {fixed_length} is not divisible by {groups} groups")
        self.fixed_length = fixed_length
        self.kernel_size = num_heads
        self.features = embed_dim // num_heads
        self.group_length = fixed_length // groups
        self.compress = nn.Conv1d(fixed_length, fixed_length, num_heads, stride=num_heads, groups=groups)
        self.expand = nn.ConvTranspose1d(fixed_length, fixed_length, num_heads, stride=num_heads, groups=groups)

    def forward(self, x: Tensor, padding_mask: Optional[Tensor] = None) -> Tensor:
        """Reorganizes the features of each sentence.

        Args:
            x: T x B x C, sentences at the left edge (padding behind them).
            padding_mask: B x T, True for padding positions; None if there are none.

        Returns:
            T x B x C. What stands at padded positions is of no meaning.

        Raises:
            ValueError: T exceeds the fixed length n.
        """
        length = x.size(0)
        check_length(length, self.fixed_length)
        if padding_mask is not None:
            x = x.masked_fill(padding_mask.t().unsqueeze(2), 0.0)
        whole = length // self.group_length
        if whole * self.group_length == length:
            return self.organize(x, 0, whole)
        if whole == 0:
            return self.organize(x, 0, 1)
        covered = whole * self.group_length
        parts = [self.organize(x[:covered], 0, whole), self.organize(x[covered:], whole, 1)]
        return torch.cat(parts, dim=0)

    def organize(self, x: Tensor, first: int, count: int) -> Tensor:
        """``count`` groups of equally many positions, from group ``first`` on: T x B x C -> T x B x C."""
        length, batch, positions = x.size(0), x.size(1), x.size(0) // count
        taps = positions * self.kernel_size
        # T x B x C -> G x B x d x T/G x k: the features a step of the convolution sees, for all its input channels
        patches = x.view(count, positions, batch, self.features, self.kernel_size).permute(0, 2, 3, 1, 4)
        patches = patches.reshape(count, batch * self.features, taps)
        group = slice(first, first + count)
        compress = self.compress.weight.view(-1, self.group_length, self.group_length * self.kernel_size)
        bias = self.compress.bias
        assert bias is not None  # for TorchScript: the biases of convolutions are declared optional
        # G x B d x T/G k -> G x B d x n/G
        hidden = torch.baddbmm(
            bias.view(-1, 1, self.group_length)[group], patches, compress[group, :, :taps].transpose(1, 2)
        )
        hidden = keep_larger_of_pairs(hidden.view(-1, self.group_length))
        hidden = hidden.view(count, batch * self.features, self.group_length)
        expand = self.expand.weight.view(-1, self.group_length, self.group_length * self.kernel_size)
        # The transposed convolution has one bias for each position, k times in a row of taps.
        bias = self.expand.bias
        assert bias is not None
        bias = bias.view(-1, self.group_length, 1)[group, :positions].expand(count, positions, self.kernel_size)
        # G x B d x n/G -> G x B d x T/G k
        organized = torch.baddbmm(bias.reshape(count, 1, taps), hidden, expand[group, :, :taps])
        organized = organized.view(count, batch, self.features, positions, self.kernel_size)
        # G x B x d x T/G x k -> B x G x T/G x d x k, batch first in memory -> T x B x C
        return organized.permute(1, 0, 3, 2, 4).reshape(batch, length, -1).transpose(0, 1)


def keep_larger_of_pairs(x: Tensor) -> Tensor:
    """Max-pooling by 2 over rows, Leaky-ReLU, max-unpooling: 2 M x N -> 2 M x N, the smaller of each pair set to zero.

    Of equal numbers the first is kept.
    """
    pairs = x.view(x.size(0) // 2, 2, x.size(1))
    second_is_larger = pairs[:, 1] > pairs[:, 0]  # M x N
    # A product with a full mask of booleans takes half the time of filling through a broadcast one, and keeps the mask
    # alone for the backward pass.
    kept = pairs * torch.stack([second_is_larger.logical_not(), second_is_larger], dim=1)
    return F.leaky_relu(kept, inplace=True).view_as(x)
