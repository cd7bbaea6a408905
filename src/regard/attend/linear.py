"""Linear attention: replace exp(q·k) by a product of features, and the n × n weights are never needed.

    output_p = φ(q_p) Σ φ(k_j) v_jᵀ  /  φ(q_p) Σ φ(k_j)          sums over the keys that p may see

The sums are one matrix and one vector per head, so time is O(n) and decoding carries a state of fixed size.
Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention".

With causality the sequence is cut into chunks: inside a chunk the masked O(chunk²) form, before it the sums
so far (Hua et al. 2022, "Transformer Quality in Linear Time", §3.2). It is made of PyTorch's own operations
alone, which differentiate it, twice too, in O(n) memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attend.checks import check_heads, check_key_mask
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

CHUNK = 64  # positions: half of the work inside the chunks, half between them, at 64 channels
SEGMENT = 8 * CHUNK  # positions at once: what is computed on the way stays in the cache


@dataclass(frozen=True)
class LinearState:
    """All that linear attention needs to know of the keys and values so far."""

    products: Float[Tensor, "b g f dv"]  # Σ φ(k_j) v_jᵀ
    features: Float[Tensor, "b g f"]  # Σ φ(k_j)

    def __add__(self, other: LinearState) -> LinearState:
        """The state of both sets of keys."""
        return LinearState(self.products + other.products, self.features + other.features)


def elu_plus_one(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """elu(x) + 1: the paper's feature map, positive everywhere."""
    return F.elu(x) + 1


def linear_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    causal: bool = False,
    key_mask: Bool[Tensor, "b k"] | None = None,
    state: LinearState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, LinearState]:
    """Attention with weights φ(q)·φ(k) / Σ φ(q)·φ(k), in time and memory O(q + k).

    Arguments:
        feature_map: φ, from (…, d) to (…, f), with values ≥ 0.
        causal: no query sees a later key. The last query lies on the last key, whatever their numbers.
        key_mask: (b, k), True = no padding; padding is in neither of the two sums.
        state: sums of earlier keys, which every query sees as well.
        return_state: also return the state with these keys in it, for the next call.

    Returns the output (b, h, q, dv), and with `return_state` a `LinearState`. A query that sees no key has
    output 0. Computed in float32 or wider.
    Raises `InvalidArgument` if shapes, mask, features or state do not fit.

    Step by step, as in decoding:

    >>> query, key, value = torch.randn(3, 1, 2, 5, 8).unbind()
    >>> whole, state, steps = linear_attention(query, key, value, causal=True), None, []
    >>> for t in range(5):
    ...     one = slice(t, t + 1)
    ...     output, state = linear_attention(
    ...         query[:, :, one], key[:, :, one], value[:, :, one], state=state, return_state=True
    ...     )
    ...     steps.append(output)
    >>> torch.allclose(torch.cat(steps, dim=2), whole, atol=1e-5)
    True
    """
    check_heads(query, key, value)
    hidden = None
    if key_mask is not None:
        check_key_mask(key_mask, query.shape[0], key.shape[2])
        hidden = ~key_mask[:, None, :, None]
        key, value = key.masked_fill(hidden, 0), value.masked_fill(hidden, 0)
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = feature_map(query.to(wide)), feature_map(key.to(wide)), value.to(wide)
    if q.shape[:-1] != query.shape[:-1] or k.shape[:-1] != key.shape[:-1] or q.shape[-1] != k.shape[-1]:
        raise InvalidArgument(
            "feature_map must change the number of channels only, the same for queries and keys; "
            f"got {tuple(q.shape)} from {tuple(query.shape)} and {tuple(k.shape)} from {tuple(key.shape)}."
        )
    if hidden is not None:
        k = k.masked_fill(hidden, 0)
    state = _checked(state, k, v)

    b, h, g = query.shape[0], query.shape[1], key.shape[1]
    q = q.reshape(b, g, h // max(g, 1), *q.shape[2:])  # (b, g, r, q, f): all that read one key head together
    if causal:
        before = max(key.shape[2] - query.shape[2], 0)  # keys that every query sees
        state = state + _sums(k[:, :, :before], v[:, :, :before])
        output, state = _causal(q, k[:, :, before:], v[:, :, before:], state)
    else:
        state = state + _sums(k, v)
        output = _divide(q @ state.products[:, :, None], q @ state.features[:, :, None, :, None])
    output = output.flatten(1, 2).to(query.dtype)
    return (output, state) if return_state else output


def _causal(
    q: Float[Tensor, "b g r q f"],
    k: Float[Tensor, "b g k f"],
    v: Float[Tensor, "b g k dv"],
    state: LinearState,
) -> tuple[Float[Tensor, "b g r q dv"], LinearState]:
    """As many queries as keys, or more: then the first come before every key and see only what is earlier."""
    n, missing = q.shape[3], q.shape[3] - k.shape[2]
    if missing:
        k, v = F.pad(k, (0, 0, missing, 0)), F.pad(v, (0, 0, missing, 0))
    outputs = []
    for start in range(0, max(n, 1), SEGMENT):
        part = slice(start, start + SEGMENT)
        output, state = _segment(q[:, :, :, part], k[:, :, part], v[:, :, part], state)
        outputs.append(output)
    return torch.cat(outputs, dim=3), state


def _segment(
    q: Float[Tensor, "b g r n f"],
    k: Float[Tensor, "b g n f"],
    v: Float[Tensor, "b g n dv"],
    state: LinearState,
) -> tuple[Float[Tensor, "b g r n dv"], LinearState]:
    """Some chunks at once, and the state behind them."""
    n = q.shape[3]
    q, k, v = _chunks(q), _chunks(k), _chunks(v)  # (b, g, r, chunks, chunk, f), (b, g, chunks, chunk, ·)

    # What every chunk finds when it begins: the sums over all chunks before it, never its own.
    products = torch.cat((state.products[:, :, None], k.mT @ v), dim=2).cumsum(dim=2)
    features = torch.cat((state.features[:, :, None], k.sum(dim=3)), dim=2).cumsum(dim=2)
    state = LinearState(products[:, :, -1], features[:, :, -1])
    products, features = products[:, :, :-1], features[:, :, :-1]

    k, v, products, features = (x[:, :, None] for x in (k, v, products, features))  # an axis for the group
    inside = (q @ k.mT).tril()  # (b, g, r, chunks, chunk, chunk)
    numerator = inside @ v + q @ products
    denominator = inside.sum(dim=-1, keepdim=True) + q @ features[..., None]
    return _divide(numerator, denominator).flatten(3, 4)[:, :, :, :n], state


def _chunks(x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b chunks chunk d"]:
    """Cut into chunks, the last one filled up with zeros."""
    tail = -x.shape[-2] % CHUNK
    if tail:  # no F.pad: before PyTorch 2.7 it refuses tensors without channels
        x = torch.cat([x, x.new_zeros(*x.shape[:-2], tail, x.shape[-1])], dim=-2)
    return x.reshape(*x.shape[:-2], x.shape[-2] // CHUNK, CHUNK, x.shape[-1])


def _sums(k: Float[Tensor, "b g k f"], v: Float[Tensor, "b g k dv"]) -> LinearState:
    return LinearState(k.mT @ v, k.sum(dim=2))


def _divide(numerator: Float[Tensor, "*n dv"], denominator: Float[Tensor, "*n 1"]) -> Float[Tensor, "*n dv"]:
    """0 where there is nothing to divide by: a query that sees no key."""
    return numerator / denominator.masked_fill(denominator == 0, 1.0)


def _checked(state: LinearState | None, k: Tensor, v: Tensor) -> LinearState:
    shape = (*k.shape[:2], k.shape[3], v.shape[3])
    if state is None:
        return LinearState(k.new_zeros(shape), k.new_zeros(shape[:3]))
    if state.products.shape != shape or state.features.shape != shape[:3]:
        raise InvalidArgument(
            f"state must have sums of the shapes {shape} and {shape[:3]}; got {tuple(state.products.shape)} "
            f"and {tuple(state.features.shape)}. Is it that of another layer or batch?"
        )
    return state
