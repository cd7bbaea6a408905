"""The sites of a chain of steps: rows of all steps in one matrix, for the sequences that were returned.

    weights[i, j] of a causal site is what the step that read token i gave to token j

Positions that no step computed (a recorder that came late) are forbidden rows, not invented ones. The mask
of the whole is a rule that gives every step the mask that it had; each step is held to it before it is
believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend import masks
from regard.errors import InvalidArgument, NothingToRecord
from regard.record.assemble import Part
from regard.record.generation import Chain
from regard.record.heard import Heard
from regard.record.rule import rule_of
from regard.record.shelf import Shelf
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

    from regard.attend.mask import Mask

_DENSE = 1 << 28  # cells of a mask that follows no rule known here, beyond which it is not kept


@dataclass(frozen=True)
class Chosen:
    """Which rows of the batch are of the sequences to show, step by step, and how long these are."""

    rows: tuple[Int[Tensor, " items"], ...]
    ends: tuple[int, ...]
    ids: Int[Tensor, "items n"] | None

    @property
    def length(self) -> int:
        """Positions of the longest sequence."""
        return max(self.ends)


def choose(chain: Chain, sequence: int, *, encoder_decoder: bool) -> Chosen:
    """The rows of sequence number `sequence` of each item; all rows where no sequences were returned."""
    steps = chain.steps
    prompt = prompt_length(chain, encoder_decoder)
    batch = steps[-1].calls.items
    if chain.returned is None or not prompt:
        rows = chain.lineage(torch.arange(batch), len(steps) - 1)
        return Chosen(tuple(rows), (steps[-1].stop,) * batch, _ids(chain, rows, len(steps)))
    first = next(iter(chain.given.values()), chain.returned)
    items, returned = first.shape[0], chain.returned.cpu()
    each = returned.shape[0] // items
    if not 0 <= sequence < each:
        raise InvalidArgument(
            f"sequence must lie in [0, {each}), the sequences of each item; got {sequence}."
        )
    wanted = returned[sequence::each]
    try:
        found = [_find(chain, wanted[i], i, items, prompt) for i in range(items)]
    except NothingToRecord:  # Whisper returns what it wrote, without what its decoder began with
        began = _ids(chain, [torch.arange(batch)], 1) if encoder_decoder else None
        if began is None or bool((wanted[:, : began.shape[1]] == began[0]).all()):
            raise
        whole = torch.cat([began[:: began.shape[0] // items], wanted], 1)
        found = [_find(chain, whole[i], i, items, began.shape[1]) for i in range(items)]
    last = max(step for _, step, _ in found)
    rows = [torch.zeros(items, dtype=torch.long) for _ in range(last + 1)]
    for item, (row, step, _) in enumerate(found):
        for of_step, line in zip(rows, chain.lineage(torch.tensor([row]), step), strict=False):
            of_step[item] = line[0]
    return Chosen(tuple(rows), tuple(end for *_, end in found), _ids(chain, rows, last + 1))


def prompt_length(chain: Chain, encoder_decoder: bool) -> int:
    """How many tokens of a returned sequence were there before; 0 when that is not known."""
    if encoder_decoder:
        given = chain.given.get("decoder_input_ids")
        return 1 if given is None else given.shape[1]
    ids = chain.given.get("input_ids")
    return 0 if ids is None else ids.shape[1]


def stitch(chain: Chain, chosen: Chosen, shelf: Shelf) -> list[Part]:
    """All sites of a chain, in the order of its first step."""
    steps = chain.steps[: len(chosen.rows)]
    known: dict[Any, tuple[Mask | None, Tensor | None]] = {}
    sites, counts = [], dict[str, int]()
    for name in [heard.name for heard in steps[0].heard]:
        site = (name, counts.get(name, 0))
        counts[name] = site[1] + 1
        try:
            calls = chain.heard_at(site, steps)
        except IndexError:
            raise NothingToRecord(
                say("errors.not_understood", model=name, reason=say("errors.steps_differ"))
            ) from None
        sites.append(_site(calls, [step.keep for step in steps], chosen, known, shelf))
    return sites


def _site(calls: list[Heard], keep: list[int], chosen: Chosen, known: dict[Any, Any], shelf: Shelf) -> Part:
    cross = calls[0].kind == "cross"
    known_as = (cross, *((id(c.mask), id(c.rule), id(c.bias), c.triangle, c.position) for c in calls))
    if len(calls) == 1 and _is_whole(calls[0], chosen):
        if known_as not in known:
            known[known_as] = _mask(calls, keep, chosen, calls[0].key.shape[2])
        return Part(calls, calls[0].query, calls[0].key, *known[known_as])
    shape = (len(chosen.ends), calls[0].query.shape[1], chosen.length, calls[0].query.shape[3])
    query = shelf.zeros(calls[0].query, shape)
    length = calls[0].key.shape[2] if cross else chosen.length
    shape = (shape[0], calls[0].key.shape[1], length, calls[0].key.shape[3])
    key = shelf.zeros(calls[0].key, shape)
    for call, kept, rows in zip(calls, keep, chosen.rows, strict=True):
        _put(query, call.query[:, :, :kept], _place(call).query, rows)
        if not cross:
            stop = _place(call).query + min(kept, call.query.shape[2]) - _place(call).key
            _put(key, call.key[:, :, :stop], _place(call).key, rows)
        elif call is calls[0]:
            _put(key, call.key, 0, rows)
    if known_as not in known:
        known[known_as] = _mask(calls, keep, chosen, length)
    rule, bias = known[known_as]
    return Part(calls, query, key, rule, bias, _row_sinks(calls, keep, chosen))


def _row_sinks(calls: list[Heard], keep: list[int], chosen: Chosen) -> Tensor | None:
    """Sinks that each query has of its own, of all steps."""
    first = calls[0].sinks
    if first is None or first.ndim == 1:
        return None
    whole = first.new_zeros(len(chosen.ends), first.shape[1], chosen.length, 1)
    for call, kept, rows in zip(calls, keep, chosen.rows, strict=True):
        if call.sinks is not None:
            _put(whole, call.sinks[:, :, :kept, None].detach(), _place(call).query, rows)
    return whole[..., 0]


def _is_whole(call: Heard, chosen: Chosen) -> bool:
    """Whether one call holds all that is chosen, so that nothing need be copied."""
    rows = torch.arange(call.query.shape[0])
    same = chosen.rows[0].numel() == rows.numel() and bool((chosen.rows[0] == rows).all())
    return same and _place(call).query == 0 and call.query.shape[2] == chosen.length


def _put(whole: Tensor, part: Tensor, start: int, rows: Tensor) -> None:
    """Write the chosen rows of a step at their positions."""
    stop = min(start + part.shape[2], whole.shape[2])
    if stop > start:
        whole[:, :, start:stop] = part[:, :, : stop - start].index_select(0, rows.to(part.device))


def _mask(
    calls: list[Heard], keep: list[int], chosen: Chosen, length: int
) -> tuple[Mask | None, Tensor | None]:
    """(rule, bias) of the whole, held against every step."""
    cells = len(chosen.ends) * chosen.length * length
    if cells > _DENSE:
        for usual in _usual(calls, keep, chosen, length):
            if _explains(usual, calls, keep, chosen, length):
                return usual, None
        raise NothingToRecord(say("errors.mask_without_rule", site=calls[0].name, positions=chosen.length))
    allowed = torch.zeros(len(chosen.ends), 1, chosen.length, length, dtype=torch.bool)
    bias: Tensor | None = None
    for call, kept, rows in zip(calls, keep, chosen.rows, strict=True):
        seen, added = _parts(call, rows)
        at = _place(call)
        high, wide = _size(call, kept, chosen.length, length)
        if seen.shape[1] > allowed.shape[1]:
            allowed = allowed.repeat(1, seen.shape[1], 1, 1)
        target = (
            slice(None),
            slice(None),
            slice(at.query, at.query + high),
            slice(at.origin, at.origin + wide),
        )
        allowed[target] = seen[:, :, :high, :wide]
        if added is not None:
            if bias is None:
                bias = torch.zeros(len(chosen.ends), added.shape[1], chosen.length, length)
            bias[target] = added[:, :, :high, :wide].float()
    rule, _ = rule_of(allowed, False, (chosen.length, length))
    if bias is not None and bool((bias == bias[:1]).all()):
        bias = bias[:1].clone()
    return rule, bias


def _parts(call: Heard, rows: Tensor) -> tuple[Bool[Tensor, "b h q k"], Tensor | None]:
    """(who may attend, what is added) of one step, over the keys that it was given."""
    queries, keys = call.query.shape[2], _place(call).seen
    allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool)
    added: Tensor | None = None
    if call.triangle:
        allowed = allowed.tril()
    for mask in (call.mask, call.bias):
        if mask is None:
            continue
        mask = mask.detach().cpu()
        mask = mask.reshape((1,) * (4 - mask.ndim) + tuple(mask.shape))[..., :keys]
        mask = mask.index_select(0, rows) if mask.shape[0] > 1 else mask
        if mask.dtype == torch.bool:
            allowed = allowed & mask
            continue
        finite = mask > torch.finfo(mask.dtype).min / 2
        allowed = allowed & finite
        rest = mask.masked_fill(~finite, 0.0)
        if bool((rest != 0).any()):
            added = rest if added is None else added + rest
    if call.rule is not None:
        allowed = allowed & call.rule.full((queries, keys), "cpu")
    return allowed.expand(-1, -1, queries, keys), added


def _size(call: Heard, kept: int, rows: int, cols: int) -> tuple[int, int]:
    """How much of a step's mask lies in the whole."""
    at = _place(call)
    high = max(0, min(kept, call.query.shape[2], rows - at.query))
    return high, max(0, min(at.seen, cols - at.origin))


def _explains(rule: Mask, calls: list[Heard], keep: list[int], chosen: Chosen, length: int) -> bool:
    whole = (chosen.length, length)
    for call, kept, rows in zip(calls, keep, chosen.rows, strict=True):
        seen, added = _parts(call, rows)
        at = _place(call)
        high, wide = _size(call, kept, *whole)
        if added is not None:
            return False
        for start in range(0, high, 1024):
            some = slice(start, min(start + 1024, high))
            own = slice(at.query + some.start, at.query + some.stop)
            tile = rule.tile(own, slice(0, length), whole, "cpu")
            inside = tile[..., at.origin : at.origin + wide]
            if int(tile.sum()) != int(inside.sum()) or not bool((inside == seen[:, :, some, :wide]).all()):
                return False
    return True


def _usual(calls: list[Heard], keep: list[int], chosen: Chosen, length: int) -> Iterator[Mask]:
    """Rules that most models follow: all keys, causal, the window of the last step; each with padding."""
    kept = torch.zeros(len(chosen.ends), length, dtype=torch.bool)
    for call, of_step, rows in zip(calls, keep, chosen.rows, strict=True):
        seen, _ = _parts(call, rows)
        at = _place(call)
        high, wide = _size(call, of_step, chosen.length, length)
        kept[:, at.origin : at.origin + wide] |= seen[:, :, :high, :wide].any(1).any(1)
    last, at = _parts(calls[-1], chosen.rows[-1])[0][:, 0, -1], _place(calls[-1])
    first = last.to(torch.uint8).argmax(-1)
    left = at.query + calls[-1].query.shape[2] - 1 - at.origin - first
    padding = masks.padding(kept)
    if calls[0].kind == "cross":
        yield padding
        return
    for rule in (masks.causal(), masks.window(max(0, int(left.max())), 0)):
        yield rule
        yield rule & padding


def _place(call: Heard) -> Any:
    if call.position is None:
        raise NothingToRecord(
            say("errors.not_understood", model=call.name, reason=say("errors.steps_differ"))
        )
    return call.position


def _find(chain: Chain, sequence: Tensor, item: int, items: int, prompt: int) -> tuple[int, int, int]:
    """(row, step, length) of a returned sequence: where its last token that the model read was read."""
    stops = [i for i in range(prompt, len(sequence)) if int(sequence[i]) in chain.ends]
    read = (stops[0] + 1 if stops else len(sequence)) - 1
    step = next((t for t, s in enumerate(chain.steps) if s.stop >= read), len(chain.steps) - 1)
    each = chain.steps[step].calls.items // items
    candidates = torch.arange(item * each, (item + 1) * each)
    ids = _ids(chain, chain.lineage(candidates, step), step + 1)
    if ids is None:
        return int(candidates[0]), step, min(read, chain.steps[step].stop)
    read = min(read, ids.shape[1])
    same = (ids[:, :read] == sequence[:read]).all(1)
    if not bool(same.any()):
        raise NothingToRecord(say("errors.sequence_not_found", item=item))
    return int(candidates[int(same.int().argmax())]), step, read


def _ids(chain: Chain, rows: list[Tensor], steps: int) -> Int[Tensor, "items n"] | None:
    """The tokens that these rows read, or None where the model was given something else."""
    parts = []
    for step, of_step in zip(chain.steps[:steps], rows, strict=True):
        ids = step.inputs.get("decoder_input_ids", step.inputs.get("input_ids"))
        if ids is None or ids.ndim != 2:
            return None
        parts.append(ids.cpu()[of_step, : step.count])
    return torch.cat(parts, 1) if chain.steps[0].past == 0 else None


def inputs_of(chain: Chain, chosen: Chosen, *, encoder_decoder: bool) -> dict[str, Tensor]:
    """What the model would have been given, had it read the chosen sequences in one call."""
    if chosen.ids is None:
        return dict(chain.given) if encoder_decoder else {}
    ids = chosen.ids[:, : chosen.length]
    kept = _kept(chain, chosen, "decoder_attention_mask" if encoder_decoder else "attention_mask")
    kept = kept & (torch.arange(chosen.length) < torch.tensor(chosen.ends)[:, None])
    if encoder_decoder:
        return {**chain.given, "decoder_input_ids": ids, "decoder_attention_mask": kept}
    return {"input_ids": ids, "attention_mask": kept}


def _kept(chain: Chain, chosen: Chosen, name: str) -> Bool[Tensor, "items n"]:
    """Which positions are tokens and no padding: as `generate` was told, or as the last step was."""
    kept = torch.ones(len(chosen.ends), chosen.length, dtype=torch.bool)
    given = chain.given.get(name)
    if given is None or given.ndim != 2 or given.shape[0] != kept.shape[0]:
        given = chain.steps[len(chosen.rows) - 1].inputs.get(name)
        if given is None or given.ndim != 2:
            return kept
        given = given.cpu()[chosen.rows[-1]]
    known = min(given.shape[1], chosen.length)
    kept[:, :known] = given[:, :known].cpu().bool()
    return kept
