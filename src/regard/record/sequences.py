"""The axes of a run: which tokens the queries and the keys of its sites are, item by item, without padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.record.recording import Axis
from regard.record.tokens import Tokens, describe, numbered

if TYPE_CHECKING:
    from jaxtyping import Bool

TEXT = "text"


@dataclass(frozen=True)
class Prepared:
    """What is known of the input before the model runs: its tokens with their texts, and where they come from."""

    axis: Axis
    texts: tuple[tuple[str, ...], ...]
    truncated: bool


class Sequences:
    """The axes of one run, by name; the one of the input is "text", others are numbered by their length."""

    def __init__(self, inputs: Mapping[str, Tensor], tokenizer: Any, prepared: Prepared | None) -> None:
        self.axes: dict[str, Axis] = {}
        self._length = -1
        ids = inputs.get("input_ids")
        if prepared is not None:
            self.axes[TEXT] = prepared.axis
            self._length = -1 if ids is None else ids.shape[-1]
        elif ids is not None and ids.ndim == 2:
            self._length = ids.shape[1]
            self.axes[TEXT] = _axis_of(
                ids, inputs.get("attention_mask"), inputs.get("token_type_ids"), tokenizer
            )

    def name_of(self, length: int, items: int) -> str:
        """The name of the axis that is `length` long."""
        if length == self._length:
            return TEXT
        name = f"positions-{length}"
        if name not in self.axes:
            self.axes[name] = Axis((numbered(length),) * items, (range(length),) * items)
        return name


def spans_of(kept: Bool[Tensor, "b n"]) -> tuple[range, ...]:
    """Where each item's own tokens stand: from the first kept position to the last."""
    spans = []
    for row in kept.tolist():
        first = next((i for i, keep in enumerate(row) if keep), 0)
        last = next((i for i in range(len(row), 0, -1) if row[i - 1]), first)
        spans.append(range(first, last))
    return tuple(spans)


def _axis_of(ids: Tensor, kept: Tensor | None, segments: Tensor | None, tokenizer: Any) -> Axis:
    given = kept is not None and kept.shape == ids.shape
    spans = spans_of(kept.bool() if given and kept is not None else torch.ones_like(ids, dtype=torch.bool))
    same = segments is not None and segments.shape == ids.shape
    tokens: list[Tokens] = []
    for item, span in enumerate(spans):
        own = slice(span.start, span.stop)
        marks = segments[item, own].tolist() if same and segments is not None else None
        tokens.append(describe(ids[item, own].tolist(), tokenizer, segments=marks))
    return Axis(tuple(tokens), spans)
