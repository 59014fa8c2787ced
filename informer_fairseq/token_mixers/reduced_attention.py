"""Self-attention whose keys and values are a few slots instead of one position each."""

import math
from typing import Optional

import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class ReducedSelfAttention(nn.Module):
    """Multi-head self-attention over S reduced slots: what the efficient token mixers have in common.

    Its four linear maps have the names, shapes and initialisation of fairseq's ``MultiheadAttention``, so that a
    stock checkpoint's attention fits. Subclasses turn the input into slots.

    Args:
        embed_dim: model width C.
        num_heads: number of heads h; must divide ``embed_dim``.
        dropout: dropout probability of the attention weights.

    Raises:
        ValueError: ``embed_dim`` is not divisible by ``num_heads``.
    """

    def __init__(self, *, embed_dim: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads != 0:
            raise ValueError(f"width {embed_dim} is not divisible by {num_heads} attention heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """fairseq's initialisation: Xavier, with 1/sqrt(2) as gain of the query, key and value maps."""
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def attend(self, x: Tensor, keys: Tensor, values: Tensor, repeats_of_last: int) -> Tensor:
        """Lets every position attend to the slots and projects the result.

        Args:
            x: B x T x C, the input of the queries.
            keys: B x S x C.
            values: B x S x C.
            repeats_of_last: how many equal slots the last one stands for; 1 if it stands for itself. Equal slots get
                equal weights, so one slot with log(count) added to its score is exact.

        Returns:
            B x T x C.
        """
        query = self.split_heads(self.q_proj(x))
        bias: Optional[Tensor] = None
        if repeats_of_last > 1:
            scores = query.new_zeros(keys.size(1))
            scores[-1] = math.log(repeats_of_last)
            bias = scores.expand(x.size(0), self.num_heads, x.size(1), keys.size(1))
        attended = F.scaled_dot_product_attention(
            query,
            self.split_heads(keys),
            self.split_heads(values),
            attn_mask=bias,
            dropout_p=self.dropout if self.training else 0.0,
        )
        attended = attended.transpose(1, 2).reshape(x.size(0), x.size(1), self.embed_dim)  # B x h x T x d -> B x T x C
        return self.out_proj(attended)

    def split_heads(self, x: Tensor) -> Tensor:
        """B x S x C -> B x h x S x d, without a copy."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).transpose(1, 2)
