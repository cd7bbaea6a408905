"""The axes of a run: which tokens the queries and keys of its sites are, by item, without padding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.record.described import Described
from regard.record.patches import patches_of
from regard.record.recording import Axis
from regard.record.tokens import describe, numbered

if TYPE_CHECKING:
    from jaxtyping import Bool

TEXT, TARGET, IMAGE = "text", "target", "image"

# Stacks that read images or sound, or a fixed set of questions to them.
_NO_TEXT = re.compile(
    r"(?:^|[._])(?:vision|visual|vit|image|img|video|audio|speech|pixel|patch|resampler|perceiver|qformer)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Prepared:
    """What is known of the input before the model runs: its tokens, and the texts that they come from."""

    axis: Axis | None
    texts: tuple[tuple[str, ...], ...] = ()
    truncated: bool = False
    notes: tuple[str, ...] = ()  # what the recording is to say of it

    def continued(self, inputs: Mapping[str, Tensor], tokenizer: Any) -> Prepared:
        """With the tokens that a model generated after the text: `inputs` are all that it read."""
        ids, kept = inputs.get("input_ids"), inputs.get("attention_mask")
        if ids is None or kept is None or self.axis is None:
            return self
        tokens, spans = [], []
        for item, (own, span) in enumerate(zip(self.axis.tokens, self.axis.spans, strict=True)):
            stop = max(span.stop, int(kept[item].nonzero()[-1]) + 1)
            tokens.append(own.followed_by(describe(ids[item, span.stop : stop].tolist(), tokenizer)))
            spans.append(range(span.start, stop))
        return replace(self, axis=Axis(tuple(tokens), tuple(spans)))


class Sequences:
    """The axes of one run, by name: "text" is the input, "target" what a decoder reads beside it.

    "image" are the patches of a picture. Others are numbered by their length: frames of sound. An axis is
    the text's only when the site belongs to a stack that reads text, and has its length and its items:
    lengths agree by chance.
    """

    def __init__(
        self,
        inputs: Mapping[str, Tensor],
        tokenizer: Any,
        prepared: Prepared | None,
        *,
        encoder_decoder: bool = False,
        model: nn.Module | None = None,
    ) -> None:
        self._inputs, self._model = inputs, model
        self.axes: dict[str, Axis] = {}
        self._shapes: dict[str, tuple[int, int]] = {}  # name -> (items, length in the padded tensors)
        self._encoder_decoder = encoder_decoder
        ids, target = inputs.get("input_ids"), inputs.get("decoder_input_ids")
        if prepared is not None and prepared.axis is not None:
            self._add(TEXT, prepared.axis, (0, -1) if ids is None else (ids.shape[0], ids.shape[-1]))
        elif ids is not None and ids.ndim == 2:
            kept, segments = inputs.get("attention_mask"), inputs.get("token_type_ids")
            self._add(TEXT, _axis_of(ids, kept, segments, tokenizer), (ids.shape[0], ids.shape[1]))
        if target is not None and target.ndim == 2:
            axis = _axis_of(target, inputs.get("decoder_attention_mask"), None, tokenizer)
            self._add(TARGET, axis, (target.shape[0], target.shape[1]))

    def names_of(self, query: Tensor, key: Tensor, site: str, kind: str) -> tuple[str, str]:
        """The names of the axes of the queries and of the keys of a site."""
        pictured = self._pictured(query, site, kind)
        queries = pictured or self._name(query, self._read_by_queries(site, kind))
        if pictured and query.shape[2] == key.shape[2]:
            return pictured, pictured
        read, shape = self._read_by_keys(site, kind), (key.shape[0], key.shape[2])
        crosses_to_image = kind == "cross" and self._shapes.get(read or "") != shape
        return queries, self._name(key, IMAGE if crosses_to_image else read)

    def _read_by_queries(self, site: str, kind: str) -> str | None:
        if reads_no_text(site):
            return None
        decodes = kind in ("causal", "cross") or "decoder" in site.lower()
        return TARGET if self._encoder_decoder and decodes else TEXT

    def _read_by_keys(self, site: str, kind: str) -> str | None:
        if kind != "cross":
            return self._read_by_queries(site, kind)
        return TEXT if self._encoder_decoder and not reads_no_text(site) else None

    def _pictured(self, query: Tensor, site: str, kind: str) -> str | None:
        """The name of the axis of patches, where the queries of a site are these."""
        items, length = query.shape[0], query.shape[2]
        reads_text = self._shapes.get(self._read_by_queries(site, kind) or "") == (items, length)
        if self._model is None or kind == "cross" or reads_text:
            return None
        name = IMAGE if self._shapes.get(IMAGE, (items, length)) == (items, length) else f"{IMAGE}-{length}"
        if name not in self._shapes:
            patches = patches_of(self._model, site, self._inputs, items, length)
            if patches is None:
                return None
            self._add(name, Axis((patches,) * items, (range(length),) * items), (items, length))
        return name

    def _name(self, tensor: Tensor, expected: str | None) -> str:
        items, length = tensor.shape[0], tensor.shape[2]
        if expected is not None and self._shapes.get(expected) == (items, length):
            return expected
        name = f"positions-{length}"
        if self._shapes.get(name, (items, length)) != (items, length):
            name = f"positions-{length}×{items}"  # windows of another stage
        if name not in self.axes:
            self._add(name, Axis((numbered(length),) * items, (range(length),) * items), (items, length))
        return name

    def _add(self, name: str, axis: Axis, shape: tuple[int, int]) -> None:
        self.axes[name] = axis
        self._shapes[name] = shape


@lru_cache(1 << 13)
def reads_no_text(site: str) -> bool:
    """Whether a site belongs to a stack that reads images or sound, by its name."""
    return _NO_TEXT.search(site) is not None


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
    rows: list[list[int]] = ids.tolist()
    marks: list[list[int]] | None = segments.tolist() if same and segments is not None else None
    own = [row[span.start : span.stop] for row, span in zip(rows, spans, strict=True)]
    of = [None if marks is None else marks[i][span.start : span.stop] for i, span in enumerate(spans)]
    return Axis(Described(own, tokenizer, of), spans)
