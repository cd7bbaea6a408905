"""From vectors of the model to queries, keys and values of every head, in one product where one is enough.

    Q = X_q W_Q + b_Q,   K = X_k W_K + b_K,   V = X_v W_V + b_V

With h query heads and g key/value heads, W_Q is d_model × h·d_k, W_K is g times d_k wide and W_V g times d_v.
g = h is multi-head attention (Vaswani et al. 2017, §3.2.2), g = 1 multi-query (Shazeer 2019), between them
grouped queries (Ainslie et al. 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.nn.linear import Linear, linear

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.nn.placement import Placement


class Projections(nn.Module):
    """Project queries, keys and values, and split them into heads.

    One matrix holds W_Q, W_K and W_V side by side (`packed`), so that self-attention costs one product and
    cross-attention two. Only when keys or values come from vectors of another width (`d_key_input`,
    `d_value_input`) are there three (`query`, `key`, `value`).

    Args:
        d_model: width of the vectors that ask.
        num_heads: number of query heads, h.
        num_kv_heads: number of key/value heads, g, a divisor of h; default h.
        d_k: channels of a query and a key; default d_model / h.
        d_v: channels of a value; default d_k.
        d_key_input, d_value_input: width of the vectors that keys and values are made from; default d_model.
        bias: whether b_Q, b_K and b_V exist.

    Initialisation: each of the three matrices Xavier-uniform (Glorot & Bengio 2010), biases 0.

    Raises:
        InvalidArgument: if the head counts do not divide, or a width is below 1.

    Example:
        >>> import torch
        >>> q, k, v = Projections(64, 8, num_kv_heads=2)(torch.randn(1, 5, 64))
        >>> tuple(q.shape), tuple(k.shape), tuple(v.shape)
        ((1, 8, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        d_key_input: int | None = None,
        d_value_input: int | None = None,
        bias: bool = True,
        **placement: Unpack[Placement],
    ) -> None:
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self._check_heads(own_width=d_k is not None)
        self.d_k = d_model // num_heads if d_k is None else d_k
        self.d_v = self.d_k if d_v is None else d_v
        self.d_key_input = d_model if d_key_input is None else d_key_input
        self.d_value_input = d_model if d_value_input is None else d_value_input
        for name in ("d_k", "d_v", "d_key_input", "d_value_input"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} must be at least 1; got {getattr(self, name)}.")
        self.widths = [num_heads * self.d_k, self.num_kv_heads * self.d_k, self.num_kv_heads * self.d_v]
        inputs = (d_model, self.d_key_input, self.d_value_input)
        self.is_packed = len(set(inputs)) == 1
        if self.is_packed:
            self.packed = Linear(d_model, sum(self.widths), bias=bias, **placement)
        else:
            self.query, self.key, self.value = (
                Linear(i, o, bias=bias, **placement) for i, o in zip(inputs, self.widths, strict=True)
            )
        self.reset_parameters()

    def _check_heads(self, *, own_width: bool) -> None:
        d_model, heads, groups = self.d_model, self.num_heads, self.num_kv_heads
        if d_model < 1 or heads < 1:
            raise InvalidArgument(f"d_model and num_heads must be at least 1; got {d_model} and {heads}.")
        if not own_width and d_model % heads:
            near = range(1, min(d_model, 2 * heads) + 1)
            divisors = ", ".join(str(n) for n in near if d_model % n == 0)
            raise InvalidArgument(
                "num_heads must divide d_model without remainder; "
                f"got num_heads={heads} and d_model={d_model}. Divisors near it: {divisors}; or give d_k."
            )
        if groups < 1 or heads % groups:
            raise InvalidArgument(
                f"num_kv_heads must divide num_heads without remainder; got num_kv_heads={groups} and "
                f"num_heads={heads}. Query head h reads key head h // (num_heads / num_kv_heads)."
            )

    def parts(self) -> list[tuple[Tensor, Tensor | None]]:
        """The weights (out, in) and biases of query, key and value, as views of what is stored."""
        if not self.is_packed:
            return [(linear.weight, linear.bias) for linear in (self.query, self.key, self.value)]
        weights = torch.split(self.packed.weight, self.widths)
        biases = (None,) * 3 if self.packed.bias is None else torch.split(self.packed.bias, self.widths)
        return list(zip(weights, biases, strict=True))

    def reset_parameters(self) -> None:
        """Draw the three matrices Xavier-uniform, each by its own widths; set the biases to 0."""
        for weight, bias in self.parts():
            nn.init.xavier_uniform_(weight)
            if bias is not None:
                nn.init.zeros_(bias)

    def forward(
        self,
        query: Float[Tensor, "b q d"],
        key: Float[Tensor, "b k dk"] | None = None,
        value: Float[Tensor, "b k dv"] | None = None,
    ) -> tuple[Float[Tensor, "b h q c"], Float[Tensor, "b g k c"], Float[Tensor, "b g k cv"]]:
        """Project; without `key` the keys come from `query`, without `value` the values come from `key`."""
        key = query if key is None else key
        value = key if value is None else value
        if self.is_packed and query is key and key is value:
            q, k, v = torch.split(
                self.packed(query), self.widths, dim=-1
            )  # (b, n, h·c), (b, n, g·c), (b, n, g·cv)
        elif self.is_packed and key is value:
            (q,), (k, v) = self._product(query, 0, 1), self._product(key, 1, 3)
        elif self.is_packed:
            (q,), (k,), (v,) = (
                self._product(query, 0, 1),
                self._product(key, 1, 2),
                self._product(value, 2, 3),
            )
        else:
            q, k, v = self.query(query), self.key(key), self.value(value)
        groups = self.num_kv_heads
        return split_heads(q, self.num_heads), split_heads(k, groups), split_heads(v, groups)

    def only_query(self, query: Float[Tensor, "b q d"]) -> Float[Tensor, "b h q c"]:
        """Project queries alone: what cross-attention needs when its keys are cached."""
        q = self._product(query, 0, 1)[0] if self.is_packed else self.query(query)
        return split_heads(q, self.num_heads)

    def _product(self, x: Tensor, first: int, last: int) -> tuple[Tensor, ...]:
        """One product with the neighbouring parts first … last − 1 of the packed matrix."""
        start, stop = sum(self.widths[:first]), sum(self.widths[:last])
        bias = None if self.packed.bias is None else self.packed.bias[start:stop]
        product = linear(x, self.packed.weight[start:stop], bias)
        return torch.split(product, self.widths[first:last], dim=-1)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, d_k={self.d_k}, d_v={self.d_v}"


def split_heads(x: Float[Tensor, "b n hc"], heads: int) -> Float[Tensor, "b h n c"]:
    """(b, n, h·c) → (b, h, n, c), a view."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def join_heads(x: Float[Tensor, "b h n c"]) -> Float[Tensor, "b n hc"]:
    """(b, h, n, c) → (b, n, h·c): the concatenation of the heads."""
    return x.transpose(1, 2).flatten(2)
