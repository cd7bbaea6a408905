"""`regard.heatmap`: a recording, weights or a mask as a figure; rows are queries, columns are keys."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend.mask import Mask
from regard.errors import InvalidArgument, MissingExtra
from regard.record.progress import Progress, telling
from regard.record.recording import Recording
from regard.show.files import write_atomically
from regard.words import anew, decimal, say

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped
    from matplotlib.figure import Figure

    from regard.show.figure import Picture

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 200
MOST_CELLS = 512  # a side; longer sequences are pooled, and the figure says so


def heatmap(
    source: Any,
    *,
    layer: int | None = None,
    head: int | None = None,
    kind: str | None = None,
    item: int = 0,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    lengths: tuple[int, int] | None = None,
    numbers: bool = False,
    title: str | None = None,
    figure: Figure | None = None,
    progress: Progress | None = None,
) -> Figure:
    """Draw weights as a matrix with token labels, a scale and a line that says where they come from.

    Args:
        source: a recording; or weights, (query, key) or (head, query, key); or a mask rule.
        layer, kind, item: which site of a recording; the first layer when not given.
        head: one head, counted from 0 as the model does; all that are kept side by side when not given.
        tokens: labels of the rows, and of the columns unless `key_tokens` is given; a recording has its own.
        lengths: (queries, keys) on which a mask rule is drawn; what it implies, or 8, when not given.
        numbers: write every value into its cell (at most 64 tokens).
        title: a title of your own.
        figure: an empty figure to draw into; a new one when not given.
        progress: called with ("overview", rows done, rows in all) where a long recording is pooled.

    Returns:
        A matplotlib Figure that no window manages: `figure.savefig("name.pdf")`, or show it in a notebook.

    Raises:
        InvalidArgument: a layer, head or shape that cannot be; MissingExtra: matplotlib is not installed.

    >>> figure = heatmap(torch.softmax(torch.eye(3), dim=-1), tokens=["le", "chat", "dort"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['le', 'chat', 'dort']
    """
    try:
        from regard.show.figure import draw
    except ImportError as error:
        raise MissingExtra(say("errors.missing_extra", package="matplotlib", extra="figures")) from error
    if isinstance(source, Recording):
        layer = source.first_layer(kind) if layer is None else layer
        where: dict[str, Any] = {"layer": layer, "kind": kind, "item": item}
        picture = _of_recording(source, head, where, telling(progress))
    elif isinstance(source, Mask):
        picture = _of_mask(source, lengths)
    else:
        picture = _of_weights(torch.as_tensor(source), head)
    return draw(_worded(picture, tokens, key_tokens, title), numbers=numbers, figure=figure)


def format_of(path: str | os.PathLike[str]) -> str:
    """The format of a figure, as the name of its file says; refuses what is not one of FORMATS."""
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in FORMATS:
        raise InvalidArgument(say("errors.figure_format", file=path, known=", ".join(FORMATS)))
    return suffix


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as PNG, SVG or PDF, as the name says; an old file stays whole until the new one is."""
    content = io.BytesIO()
    figure.savefig(content, format=format_of(path), dpi=DOTS_PER_INCH)
    return write_atomically(path, content.getvalue())


def _of_recording(recording: Recording, head: int | None, where: dict[str, Any], tell: Progress) -> Picture:
    """All heads of a layer, or one: exact where cells can be seen, else the largest weight of each block."""
    layer, kind, item = where["layer"], where["kind"], where["item"]
    site = recording.site(layer=layer, kind=kind)
    queries = recording.tokens(item=item, side="query", site=site).texts
    keys = recording.tokens(item=item, side="key", site=site).texts
    if site.heads == 1 and site.cut is not None:
        head = site.head_numbers[0] if head is None else head
    if max(len(queries), len(keys)) <= MOST_CELLS:
        values = _heads_first(recording.weights(head=head, **where))
    else:
        heads = site.head_numbers if head is None else (head,)
        values = torch.stack(
            [
                recording.overview(head=one, size=MOST_CELLS, progress=_part(tell, i, len(heads)), **where)
                for i, one in enumerate(heads)
            ]
        )
    origin = recording.provenance
    checked = (
        say("figure.checked", error=f"{site.proof.max_error:.0e}")
        if site.proof.rows
        else anew(site.proof.note)
    )
    first = recording.sequences[site.queries].generated_from(item)
    written = say("figure.written", first=first) if first is not None else ""
    kept = site.largest
    partly = "" if kept is None else say("notes.top_k", k=kept.count, share=decimal(f"{kept.left_out:.2g}"))
    facts = filter(None, (site.kernel, origin.dtype, checked, written, partly))
    return _picture(
        values,
        lengths=(len(queries), len(keys)),
        title=" · ".join((origin.model, *_place(layer, head, site.kind))),
        note=" · ".join(facts),
        queries=queries,
        keys=keys,
        heads=site.head_numbers,
    )


def _part(tell: Progress, number: int, count: int) -> Progress:
    """The progress of one of `count` equal parts, told as that of the whole."""
    return lambda what, done, total: tell(what, number * total + done, count * total)


def _of_weights(weights: Float[Tensor, "*h q k"], head: int | None) -> Picture:
    """A tensor of weights; more cells than can be seen are pooled to the largest of each block."""
    if weights.ndim not in (2, 3):
        raise InvalidArgument(
            f"weights must be (query, key) or (head, query, key); got the shape {tuple(weights.shape)}. "
            "Choose one item of a batch: weights[0]."
        )
    values = _heads_first(weights.detach().cpu())
    if head is not None:
        if not 0 <= head < len(values):
            raise InvalidArgument(say("errors.no_head", heads=len(values), got=head))
        values = values[head : head + 1]
    lengths = (values.shape[1], values.shape[2])
    blocks = [-(-length // MOST_CELLS) for length in lengths]
    if max(blocks) > 1:
        values = torch.nn.functional.max_pool2d(values.float()[None], blocks, ceil_mode=True)[0]
    return _picture(values, lengths=lengths, title="")


def _of_mask(mask: Mask, lengths: tuple[int, int] | None) -> Picture:
    """A mask rule on a rectangle of the given lengths."""
    queries, keys = lengths = lengths or mask.natural_lengths() or (8, 8)
    if max(lengths) > MOST_CELLS:
        raise InvalidArgument(f"lengths must be at most {MOST_CELLS} to be drawn; got {lengths}.")
    tile = mask.tile(slice(0, queries), slice(0, keys), lengths)
    allowed = tile.reshape(-1, *tile.shape[-2:])[0].expand(queries, keys)  # the first item and head
    return dataclasses.replace(_picture(allowed[None], lengths=lengths, title=repr(mask)), is_mask=True)


def _picture(
    values: Shaped[Tensor, "h q k"],
    *,
    lengths: tuple[int, int],
    title: str,
    note: str = "",
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    heads: Sequence[int] | None = None,
) -> Picture:
    """A Picture of values that may be fewer than the `lengths` that they stand for."""
    from regard.show.figure import Picture

    count, *shown = values.shape
    numbers = range(count) if heads is None else heads
    pooled = tuple(-(-length // cells) if cells else 1 for length, cells in zip(lengths, shown, strict=True))
    if pooled != (1, 1):
        note = " · ".join(filter(None, (note, say("figure.pooled", rows=pooled[0], columns=pooled[1]))))
    return Picture(
        values=values.to(torch.float32).numpy(),
        panels=tuple(say("figure.head", head=head) for head in numbers) if count > 1 else ("",),
        queries=None if queries is None else tuple(queries),
        keys=None if keys is None else tuple(keys),
        title=title,
        note=note,
        pooled=(pooled[0], pooled[1]),
    )


def _worded(
    picture: Picture, tokens: Sequence[str] | None, key_tokens: Sequence[str] | None, title: str | None
) -> Picture:
    """The picture with the labels and the title that the caller gave."""
    _, rows, columns = picture.values.shape
    if key_tokens is None and tokens is not None and rows == columns:
        key_tokens = tokens
    given = {
        "tokens": (tokens, rows * picture.pooled[0]),
        "key_tokens": (key_tokens, columns * picture.pooled[1]),
    }
    for name, (texts, expected) in given.items():
        if texts is not None and picture.pooled == (1, 1) and len(texts) != expected:
            raise InvalidArgument(
                f"{name} must have one text for each of {expected} positions; got {len(texts)}."
            )
    return dataclasses.replace(
        picture,
        queries=picture.queries if tokens is None else tuple(tokens),
        keys=picture.keys if key_tokens is None else tuple(key_tokens),
        title=picture.title if title is None else title,
    )


def _place(layer: int, head: int | None, kind: str) -> tuple[str, ...]:
    kinds = () if kind in ("self", "causal") else (kind,)
    heads = () if head is None else (say("figure.head", head=head),)
    return (*kinds, say("figure.layer", layer=layer), *heads)


def _heads_first(weights: Float[Tensor, "*h q k"]) -> Float[Tensor, "h q k"]:
    return weights if weights.ndim == 3 else weights[None]
