"""Multi-head attention as a module: project, attend in every head at once, join, mix.

    MultiHead(X) = [head_1; …; head_h] W_O + b_O,   head_i = softmax(Q_i K_{g(i)}ᵀ / √d_k + bias) V_{g(i)}

Source: Vaswani et al. 2017, "Attention Is All You Need", §3.2.2; grouped queries: Ainslie et al. 2023;
QK-norm: Henry et al. 2020, with a learned gain instead of its cosine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

import torch.nn.functional as F
from torch import Tensor, nn

from regard.attend.attention import attention
from regard.attend.checks import check_window
from regard.attend.mask import Mask
from regard.attend.reference import Attended
from regard.errors import InvalidArgument
from regard.nn.conversion import from_torch, to_torch
from regard.nn.extra_keys import ExtraKeys
from regard.nn.linear import Linear
from regard.nn.norms import Norm, norm_layer
from regard.nn.positions import Alibi, RelativePositions, RotaryPositions
from regard.nn.projections import Projections, join_heads

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from regard.nn.cache import KVCache
    from regard.nn.placement import Placement


class MultiHeadAttention(nn.Module):
    """Attention with learned projections: self, cross or causal, all heads in one batched product.

    Args:
        d_model: width in and out.
        num_heads: heads, h; must divide d_model unless d_k is given.
        num_kv_heads: key/value heads, g: h (default) multi-head, 1 multi-query, between them grouped queries.
        d_k, d_v: channels per head of queries and keys, and of values; default d_model / h, and d_k.
        d_key_input, d_value_input: width of the vectors that keys and values are made from; default d_model.
        bias: whether the three projections add one; output_bias: the same for W_O, default as `bias`.
        causal: whether a query sees only the keys up to its own position (bottom-right aligned).
        window: (left, right), keys seen on either side of the own position.
        positions: a `RotaryPositions`, `Alibi` or `RelativePositions`, acting inside self-attention.
        qk_norm: "rms" or "layer": normalise queries and keys per head before positions and scores.
        dropout: probability on the weights; output_dropout: on the output. Both in training only.
        scale: factor on the scores, default 1/√d_k; softcap: c · tanh(scores / c).
        add_bias_kv, add_zero_attn: one more key and value, learned or zero, that every query may see.
        batch_first: whether vectors are (batch, length, width), or (length, batch, width).

    Initialisation: W_Q, W_K, W_V and W_O Xavier-uniform, each by its own widths; biases 0; gains 1.

    Raises:
        InvalidArgument: if head counts do not divide, or an option is out of its range.

    Example:
        >>> import torch
        >>> attend = MultiHeadAttention(64, 8, num_kv_heads=2, causal=True)
        >>> x = torch.randn(1, 5, 64)
        >>> attend(x).shape
        torch.Size([1, 5, 64])
        >>> attend(x, return_weights=True).weights.shape
        torch.Size([1, 8, 5, 5])
    """

    to_torch = to_torch

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
        output_bias: bool | None = None,
        causal: bool = False,
        window: tuple[int | None, int | None] | None = None,
        positions: RotaryPositions | Alibi | RelativePositions | None = None,
        qk_norm: Norm | None = None,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        scale: float | None = None,
        softcap: float | None = None,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        batch_first: bool = True,
        **placement: Unpack[Placement],
    ) -> None:
        super().__init__()
        for name, p in (("dropout", dropout), ("output_dropout", output_dropout)):
            if not 0.0 <= p <= 1.0:
                raise InvalidArgument(f"{name} must lie in [0, 1]; got {p}.")
        if window is not None:
            check_window(window)
        if (add_bias_kv or add_zero_attn) and (window is not None or positions is not None):
            raise InvalidArgument(
                "add_bias_kv and add_zero_attn give a key without a position; "
                "got a window or positions beside them. Use one or the other."
            )
        self.projections = Projections(
            d_model,
            num_heads,
            num_kv_heads=num_kv_heads,
            d_k=d_k,
            d_v=d_v,
            d_key_input=d_key_input,
            d_value_input=d_value_input,
            bias=bias,
            **placement,
        )
        width = num_heads * self.projections.d_v
        self.output = Linear(width, d_model, bias=bias if output_bias is None else output_bias, **placement)
        self.positions = positions
        self.query_norm = norm_layer(qk_norm, self.projections.d_k, **placement) if qk_norm else None
        self.key_norm = norm_layer(qk_norm, self.projections.d_k, **placement) if qk_norm else None
        self.extra = ExtraKeys(self.projections, learned=add_bias_kv, zero=add_zero_attn, **placement)
        self.causal, self.window, self.scale, self.softcap = causal, window, scale, softcap
        self.dropout, self.output_dropout, self.batch_first = dropout, output_dropout, batch_first
        self.reset_parameters()

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, *, causal: bool = False) -> Self:
        """A module that gives the same outputs as torch's, with a copy of its weights; see `conversion`."""
        return from_torch(cls, module, causal=causal)

    @property
    def d_model(self) -> int:
        return self.projections.d_model

    @property
    def num_heads(self) -> int:
        return self.projections.num_heads

    def reset_parameters(self) -> None:
        """Draw W_O Xavier-uniform and set its bias to 0; the parts reset themselves."""
        nn.init.xavier_uniform_(self.output.weight)
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)

    def forward(
        self,
        query: Float[Tensor, "b q d"],
        key: Float[Tensor, "b k dk"] | None = None,
        value: Float[Tensor, "b k dv"] | None = None,
        *,
        mask: Mask | Bool[Tensor, "#b #h q k"] | None = None,
        bias: Float[Tensor, "#b #h q k"] | None = None,
        key_mask: Bool[Tensor, "b k"] | None = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> Tensor | Attended:
        """Attend from `query` to `key` (itself if left out) and bring home `value` (`key` if left out).

        With a `cache` in self-attention, `query` holds only the new tokens and the keys are all tokens so
        far; mask, bias and key_mask then cover all of these. In cross-attention the first call fills the
        cache with the projected `key` and `value`, and later calls read it and do not look at them again.

        Returns:
            The output (b, q, d_model); with return_weights `Attended(output, weights, None)`, weights (b, h,
            q, k) per head, before dropout; the keys of add_bias_kv and add_zero_attn are their last columns.

        Raises:
            InvalidArgument: if shapes do not fit, or if positions inside meet cross-attention.
        """
        value = None if value is key or (key is None and value is query) else value
        key = None if key is query else key
        if not self.batch_first:
            query = query.transpose(0, 1)
            key, value = (x if x is None else x.transpose(0, 1) for x in (key, value))
        self._check(query, key, value)
        q, k, v = self._heads(query, key, value, cache)
        if cache is not None and cache.start:
            mask, bias, key_mask = _in_window(cache, q.shape[2], mask, bias, key_mask)
        if self.positions is not None and not isinstance(self.positions, RotaryPositions):
            distance = self.positions(q.shape[2], k.shape[2], q.device).to(q.dtype)
            bias = distance if bias is None else bias + distance
        if self.extra.count:
            k, v, mask, bias, key_mask = self.extra(q, k, v, mask, bias, key_mask)
        attended = attention(
            q,
            k,
            v,
            mask=mask,
            bias=bias,
            key_mask=key_mask,
            causal=self.causal,
            window=self.window,
            scale=self.scale,
            softcap=self.softcap,
            dropout_p=self.dropout,
            training=self.training,
            return_weights=return_weights,
        )
        heads = attended.output if isinstance(attended, Attended) else attended  # (b, h, q, d_v)
        output: Tensor = self.output(join_heads(heads))
        if self.output_dropout:
            output = F.dropout(output, self.output_dropout, self.training)
        output = output if self.batch_first else output.transpose(0, 1)
        if not isinstance(attended, Attended):
            return output
        return Attended(output, self.extra.last(attended.weights), None)

    def _heads(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, cache: KVCache | None
    ) -> tuple[Float[Tensor, "b h q c"], Float[Tensor, "b g k c"], Float[Tensor, "b g k cv"]]:
        """Queries, keys and values of every head, normalised, rotated, and joined with what the cache
        holds.
        """
        is_cross = key is not None or value is not None
        if is_cross and cache is not None and len(cache):
            q = self.projections.only_query(query)
            return (q if self.query_norm is None else self.query_norm(q), *cache.read())
        q, k, v = self.projections(query, key, value)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q).to(v.dtype), self.key_norm(k).to(v.dtype)
        if isinstance(self.positions, RotaryPositions):
            start = 0 if cache is None else len(cache)
            q, k = self.positions.both(q, k, start)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k, v

    def _check(self, query: Tensor, key: Tensor | None, value: Tensor | None) -> None:
        parts = self.projections
        widths = (parts.d_model, parts.d_key_input, parts.d_value_input)
        given = (
            query,
            query if key is None else key,
            (query if key is None else key) if value is None else value,
        )
        axes = "(batch, length, {})" if self.batch_first else "(length, batch, {})"
        for name, x, width in zip(("query", "key", "value"), given, widths, strict=True):
            if x.dim() != 3 or x.shape[-1] != width:
                shape = (
                    tuple(x.shape)
                    if self.batch_first or x.dim() < 2
                    else (x.shape[1], x.shape[0], *x.shape[2:])
                )
                raise InvalidArgument(
                    f"{name} must be {axes.format(width)}; got {shape}."
                    + (" Add a batch axis to a single sequence." if x.dim() == 2 else "")
                )
        if self.positions is not None and (key is not None or value is not None):
            raise InvalidArgument(
                "positions act inside self-attention only; got a key or value of another sequence. "
                "Use a MultiHeadAttention without positions for cross-attention."
            )

    def extra_repr(self) -> str:
        return f"causal={self.causal}, window={self.window}, dropout={self.dropout}"


def _in_window(
    cache: KVCache,
    queries: int,
    mask: Mask | Tensor | None,
    bias: Tensor | None,
    key_mask: Tensor | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The columns of mask, bias and key_mask that belong to the keys that a sliding cache handed out."""
    start, length = cache.start, cache.length

    def cut(x: Tensor | None) -> Tensor | None:
        return x if x is None or x.shape[-1] == 1 else x[..., start:]

    if isinstance(mask, Mask):
        tile = mask.tile(slice(0, queries), slice(start, length), (queries, length), cache.device)
        return tile, cut(bias), cut(key_mask)
    return cut(mask), cut(bias), cut(key_mask)
