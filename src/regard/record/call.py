"""What a call of an attention function means: its arguments, read the way the kernel that ran reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.attend.mask import Mask

# Keywords that do not change what an attention computes.
_HARMLESS = frozenset(
    {
        "module",
        "query",
        "key",
        "value",
        "attention_mask",
        "scaling",
        "dropout",
        "is_causal",
        "softcap",
        "s_aux",
        "sinks",
        "position_bias",
        "sliding_window",
        "position_ids",
        "cache",
        "cache_position",
        "past_key_value",
        "past_key_values",
        "output_attentions",
        "output_hidden_states",
        "use_cache",
        "return_dict",
        "head_mask",
        "encoder_hidden_states",
        "token_type_ids",
        "position_embeddings",
        "kernel_options",
        "num_items_in_batch",
    }
)


@dataclass(frozen=True)
class Call:
    """One call of an attention, as it was computed: what went in, and what decides who sees whom."""

    query: Float[Tensor, "b h q d"]
    key: Float[Tensor, "b g k d"]
    value: Float[Tensor, "b g k v"]
    mask: Tensor | None  # boolean (True = may attend) or added to the logits; broadcasts to (b, h, q, k)
    triangle: bool  # besides the mask: key j ≤ query i, both counted from 0
    causal: bool  # whether no query sees what comes after it, by triangle or mask, as the module says
    scale: float
    kernel: str
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None  # (h,), or one for each query: (b, h, q)
    dropout: float = 0.0
    rule: Mask | None = None  # besides the mask: one that is known as a rule, and need not be found out
    unknown: tuple[str, ...] = ()  # keywords that the function was given and that are not understood here

    @property
    def lengths(self) -> tuple[int, int]:
        """(queries, keys)."""
        return self.query.shape[2], self.key.shape[2]


class NotUnderstood(Exception):
    """A call that cannot be read; the text says what about it. Internal to this package."""


def understand(kernel: str, arguments: dict[str, Any]) -> Call:
    """Read the arguments of an attention function, given by name."""
    module = arguments.get("module")
    query, key, value = (_four_axes(name, arguments.get(name)) for name in ("query", "key", "value"))
    mask = arguments.get("attention_mask")
    if mask is not None and not isinstance(mask, Tensor):
        raise NotUnderstood(type(mask).__name__)
    if mask is not None and mask.ndim == 2:  # (b, k), as flash kernels take it: 0 is padding
        mask = mask[:, None, None, :].bool()
    says_causal = arguments.get("is_causal")
    if says_causal is None:
        says_causal = getattr(module, "is_causal", None)
    queries, keys = query.shape[2], key.shape[2]
    # Eager functions know only the mask; the others draw the triangle themselves when there is none, also for
    # a module that does not say (Mllama's cross-attention).
    triangle = says_causal is not False and mask is None and queries > 1 and kernel != "eager"
    if triangle and keys > queries:  # unused slots of a static cache
        key, value = key[:, :, :queries], value[:, :, :queries]
    scale = arguments.get("scaling")
    dropped = kernel == "sdpa"  # this kernel has neither softcap nor sinks, whatever it is given
    return Call(
        query=query,
        key=key,
        value=value,
        mask=mask,
        triangle=triangle,
        causal=bool(says_causal) or triangle,
        scale=float(query.shape[-1] ** -0.5 if scale is None else scale),
        kernel=kernel,
        bias=arguments.get("position_bias"),
        softcap=None if dropped else arguments.get("softcap"),
        sinks=None if dropped else _sinks(arguments),
        dropout=float(arguments.get("dropout") or 0.0) if isinstance(module, nn.Module) else 0.0,
        unknown=tuple(sorted(n for n, v in arguments.items() if n not in _HARMLESS and v is not None)),
    )


def _sinks(arguments: dict[str, Any]) -> Tensor | None:
    """Logits of what takes weight and gives no value: by head, or by query, as one more column of keys."""
    sinks = arguments.get("s_aux")
    of_queries = arguments.get("sinks")
    if sinks is not None or of_queries is None:
        return sinks
    if not isinstance(of_queries, Tensor) or of_queries.ndim != 4 or of_queries.shape[3] != 1:
        raise NotUnderstood(f"sinks: {getattr(of_queries, 'shape', None)}, not (b, h, q, 1)")
    return of_queries[..., 0]


def _four_axes(name: str, tensor: object) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.ndim != 4:
        got = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
        raise NotUnderstood(f"{name}: {got}, not (b, h, n, d)")
    return tensor
