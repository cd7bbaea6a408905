"""From texts to what a model takes: tokens with padding, held to the model's limit, never cut in silence."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument, TooLong
from regard.record.recording import Axis
from regard.record.sequences import Prepared
from regard.record.tokens import describe
from regard.words import say

_NO_LIMIT = 1 << 24  # tokenizers without a limit state an absurd one


@dataclass(frozen=True)
class Encoded:
    """Input tensors of a model, and what is known of their tokens."""

    inputs: dict[str, Tensor]
    prepared: Prepared


def encode(
    model: nn.Module,
    tokenizer: Any,
    text: str | Sequence[str],
    pair: str | Sequence[str] | None,
    *,
    truncate: bool,
    padding: Literal["left", "right"],
    template: bool = False,
) -> Encoded:
    """Tokens of one text, of a pair, or of several as a batch; text from a `template` has its marks."""
    texts, pairs = _checked(text, pair)
    if padding not in ("left", "right"):
        raise InvalidArgument(f"padding must be 'left' or 'right'; got {padding!r}.")
    limit = limit_of(model, tokenizer)
    fast = bool(getattr(tokenizer, "is_fast", False))
    wanted = {"return_offsets_mapping": fast, "return_attention_mask": True, "verbose": False}
    wanted["add_special_tokens"] = not template
    encoding = tokenizer(texts, pairs, **wanted)
    longest = max(len(ids) for ids in encoding["input_ids"])
    truncated = limit is not None and longest > limit
    if truncated:
        if not truncate:
            raise TooLong(say("errors.too_long", tokens=longest, limit=limit), tokens=longest, limit=limit)
        encoding = tokenizer(texts, pairs, truncation=True, max_length=limit, **wanted)
    rows: list[list[int]] = encoding["input_ids"]
    tokens = []
    for item, ids in enumerate(rows):
        described = describe(
            ids,
            tokenizer,
            segments=encoding.sequence_ids(item) if fast else _column(encoding, "token_type_ids", item),
            offsets=encoding["offset_mapping"][item] if fast else None,
        )
        if all(described.special):
            raise InvalidArgument(say("errors.no_tokens"))
        tokens.append(described)
    width = max(map(len, rows))
    spans = tuple(
        range(0, len(ids)) if padding == "right" else range(width - len(ids), width) for ids in rows
    )
    inputs = _padded(model, tokenizer, encoding, spans, width)
    sources = tuple((one,) for one in texts) if pairs is None else tuple(zip(texts, pairs, strict=True))
    return Encoded(inputs, Prepared(Axis(tuple(tokens), spans), sources, truncated))


def limit_of(model: nn.Module, tokenizer: Any = None) -> int | None:
    """How many tokens the model takes: the rows of its table of positions, or what its tokenizer states."""
    limits = []
    stated = getattr(tokenizer, "model_max_length", None)
    if isinstance(stated, int) and stated < _NO_LIMIT:
        limits.append(stated)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] == "position_embeddings":
            # RoBERTa and kin count positions from the one after that of padding.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - unused)
    return min(limits, default=None)


def device_of(model: nn.Module) -> torch.device:
    """Where the model takes its input."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _checked(
    text: str | Sequence[str], pair: str | Sequence[str] | None
) -> tuple[list[str], list[str] | None]:
    texts = _as_list(text)
    pairs = None if pair is None else _as_list(pair)
    if not texts:
        raise InvalidArgument(say("errors.empty_text"))
    if pairs is not None and len(pairs) != len(texts):
        raise InvalidArgument(f"pair must hold as many texts as text, {len(texts)}; got {len(pairs)}.")
    for one in [*texts, *(pairs or [])]:
        if not isinstance(one, str):
            raise InvalidArgument(f"text must be a string or several; got {type(one).__name__}.")
        if not one.strip():
            raise InvalidArgument(say("errors.empty_text"))
        try:
            one.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidArgument(say("errors.not_unicode", position=error.start)) from error
    return texts, pairs


def _as_list(text: str | Sequence[str]) -> list[str]:
    return list(text) if isinstance(text, list | tuple) else [text]  # type: ignore[list-item]


def _padded(
    model: nn.Module, tokenizer: Any, encoding: Any, spans: tuple[range, ...], width: int
) -> dict[str, Tensor]:
    """The tensors that the model's forward takes, filled up to one width."""
    known = inspect.signature(model.forward).parameters
    fill = {"input_ids": tokenizer.pad_token_id, "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}
    if fill["input_ids"] is None:
        if any(len(span) < width for span in spans):
            raise InvalidArgument(say("errors.no_padding_token"))
        fill["input_ids"] = 0
    device = device_of(model)
    inputs = {}
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        if name not in encoding or name not in known:
            continue
        rows = torch.full((len(spans), width), fill.get(name, 0), dtype=torch.long)
        for row, values, span in zip(rows, encoding[name], spans, strict=True):
            row[span.start : span.stop] = torch.tensor(values, dtype=torch.long)
        inputs[name] = rows.to(device)
    return inputs


def _column(encoding: Any, name: str, item: int) -> list[int] | None:
    return encoding[name][item] if name in encoding else None


def as_messages(tokenizer: Any, name: str, text: str | Sequence[str], *, answer: bool) -> list[str]:
    """Each text as what a user says, in a chat template; with `answer`, the model is next to speak."""
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidArgument(say("errors.no_chat_template", name=name))
    texts, _ = _checked(text, None)
    return [
        str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": one}], tokenize=False, add_generation_prompt=answer
            )
        )
        for one in texts
    ]
