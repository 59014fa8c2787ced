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

    The parameters live in a ``Conv1d`` and a ``ConvTranspose1d`` of torch, with their shapes and initialisation.

    Args:
        fixed_length: the largest source length n.
        embed_dim: model width C.
        num_heads: h, the convolutions' kernel and stride; must divide C with an even quotient.

    Raises:
        ValueError: C is not divisible by h, or C / h is odd (its pairs would not come out even).
    """

    def __init__(self, *, fixed_length: int, embed_dim: int, num_heads: int):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads != 0:
            raise ValueError(f"width {embed_dim} is not divisible by {num_heads} heads")
        if (embed_dim // num_heads) % 2 != 0:
            raise ValueError(
                f"head width {embed_dim // num_heads} (width {embed_dim} by {num_heads} heads) is odd: "
                "information organization pools it in pairs"
            )
        self.fixed_length = fixed_length
        self.kernel_size = num_heads
        self.features = embed_dim // num_heads
        self.compress = nn.Conv1d(fixed_length, fixed_length, num_heads, stride=num_heads)
        self.expand = nn.ConvTranspose1d(fixed_length, fixed_length, num_heads, stride=num_heads)

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
        length, batch = x.size(0), x.size(1)
        check_length(length, self.fixed_length)
        taps = length * self.kernel_size
        # T x B x C -> B x d x T x k: the features a step of the convolution sees, for all its input channels
        patches = x.view(length, batch, self.features, self.kernel_size).permute(1, 2, 0, 3)
        patches = patches.clone(memory_format=torch.contiguous_format)  # for T = 1, contiguous() would share memory
        if padding_mask is not None:
            patches = patches.masked_fill_(padding_mask.view(batch, 1, length, 1), 0.0)
        compress = self.compress.weight.view(self.fixed_length, -1)[:, :taps]  # n x n k -> n x T k
        hidden = F.linear(patches.view(-1, taps), compress, self.compress.bias)  # B d x n
        hidden = F.leaky_relu(keep_larger_of_pairs(hidden), inplace=True).view(-1, self.fixed_length)
        expand = self.expand.weight.view(self.fixed_length, -1)[:, :taps]  # n x n k -> n x T k
        # The transposed convolution has one bias for each position, k times in a row of taps.
        expand_bias = self.expand.bias
        assert expand_bias is not None  # for TorchScript: the parameter of a ConvTranspose1d is declared optional
        bias = expand_bias[:length].unsqueeze(1).expand(length, self.kernel_size).reshape(taps)
        organized = torch.addmm(bias, hidden, expand)  # B d x T k
        organized = organized.view(batch, self.features, length, self.kernel_size)
        # B x d x T k -> B x T x d k, batch first in memory -> T x B x C
        return organized.permute(0, 2, 1, 3).reshape(batch, length, -1).transpose(0, 1)


def keep_larger_of_pairs(x: Tensor) -> Tensor:
    """Max-pooling by 2 over rows, then max-unpooling: 2 M x N -> M x 2 x N, the smaller of each pair set to zero."""
    pairs = x.view(x.size(0) // 2, 2, x.size(1))
    second_is_larger = pairs[:, 1] > pairs[:, 0]  # M x N
    # A product with a full mask of booleans takes half the time of filling through a broadcast one, and keeps the mask
    # alone for the backward pass.
    return pairs * torch.stack([second_is_larger.logical_not(), second_is_larger], dim=1)
