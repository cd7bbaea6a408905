"""From the calls heard in one run of a model to a Recording."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend import masks
from regard.record import pieces
from regard.record.choosing import LeftOut, check
from regard.record.heard import Heard, prove
from regard.record.layers import names_of_calls, numbers_of
from regard.record.origin import Origin
from regard.record.recording import Provenance, Recording
from regard.record.rule import rule_of
from regard.record.sequences import Prepared, Sequences, reads_no_text
from regard.record.site import NAN, Proof, Site
from regard.record.unseen import unseen
from regard.version import __version__
from regard.words import say

if TYPE_CHECKING:
    from regard.attend.mask import Mask

_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Part:
    """One site before it has a number: the calls that it is made of, the first for all, and its tensors."""

    calls: list[Heard]
    query: Tensor
    key: Tensor
    rule: Mask | None
    bias: Tensor | None
    row_sinks: Tensor | None = None  # (b, h, q), of steps that were put together

    @property
    def sinks(self) -> Tensor | None:
        """Logits of the learned sinks."""
        sinks = self.calls[0].sinks if self.row_sinks is None else self.row_sinks
        return None if sinks is None else sinks.detach()

    @property
    def kind(self) -> str:
        """What the module says, or what its mask tells."""
        says = self.calls[0].kind
        # A module that does not call itself causal may be given a causal mask all the same (PEGASUS-X).
        return says if says in ("causal", "cross") else _kind_by_mask(self)


def parts_of(calls: list[Heard]) -> list[Part]:
    """The sites that the calls of one run are of."""
    looks = _looks(calls)
    heard = [look[0] for look in looks]
    groups = pieces.runs_of([h.name for h in heard], [h.place for h in heard], [h.whole for h in heard])
    rules: dict[tuple[Any, ...], tuple[Mask | None, Tensor | None]] = {}
    return [
        Part([call for i in group for call in looks[i]], *_tensors([heard[i] for i in group], rules))
        for group in groups
    ]


def join(
    origin: Origin,
    parts: list[Part],
    inputs: dict[str, Tensor],
    prepared: Prepared | None,
    left_out: Sequence[LeftOut] = (),
    notes: tuple[str, ...] = (),
) -> Recording:
    """The Recording of all sites of a model that was given `inputs`, but for those that were left out.

    Raises `UnfaithfulRecording` for the first site that does not agree.
    """
    names = [part.calls[0].name for part in parts]
    if len(set(names)) < len(names):
        names = names_of_calls(origin.shared(), names, ended=origin.module is not None)
    kinds = [part.kind for part in parts]
    check(origin.name, names, kinds, left_out)
    layers = numbers_of(names, kinds)
    sequences = Sequences(
        inputs,
        origin.tokenizer,
        prepared,
        encoder_decoder=origin.encoder_decoder,
        model=origin.module,
    )
    # Which tokens a site reads is told by what others read as well: image patches, say.
    in_steps = any(part.calls[0].position is not None for part in parts)
    for other in left_out:
        if not in_steps or reads_no_text(other.name):
            sequences.names_of(other.query, other.key, other.name, other.kind)
    sites = []
    for part, name, layer, kind in zip(parts, names, layers, kinds, strict=True):
        one = part.calls[0]
        queries, keys = sequences.names_of(part.query, part.key, name, kind)
        sites.append(
            Site(
                name=name,
                layer=layer,
                kind=kind,
                query=part.query,
                key=part.key,
                scale=one.scale,
                mask=part.rule,
                bias=None if part.bias is None else part.bias.to(part.query.device),
                softcap=one.softcap,
                sinks=None if part.sinks is None else part.sinks.to(part.query.device),
                kernel=one.kernel,
                door=one.door,
                queries=queries,
                keys=keys,
                proof=_together([prove(call) for call in part.calls]),
                cut=None if one.heads is None else (one.heads.numbers, one.heads.total),
            )
        )
    provenance = _provenance(origin, sites, prepared, (*notes, *_late(parts)), left_out)
    return Recording(tuple(sites), sequences.axes, provenance)


def _looks(heard: list[Heard]) -> list[list[Heard]]:
    """Calls in order; together those that look at the same for other values (the halves of DiffLlama)."""
    looks: list[list[Heard]] = []
    for one in heard:
        before = looks[-1][0] if looks else None
        if (
            before is not None
            and (one.name, one.place, one.query.shape) == (before.name, before.place, before.query.shape)
            and one.mask is before.mask
            and torch.equal(one.query, before.query)
            and torch.equal(one.key, before.key)
        ):
            looks[-1].append(one)
        else:
            looks.append([one])
    return looks


def _tensors(
    group: list[Heard], rules: dict[tuple[Any, ...], tuple[Mask | None, Tensor | None]]
) -> tuple[Tensor, Tensor, Mask | None, Tensor | None]:
    """(query, key, rule, bias) of a site; `rules` holds what masks already seen amount to."""
    one = group[0]
    if len(group) > 1:
        query, key = (torch.cat([getattr(h, of) for h in group], dim=2) for of in ("query", "key"))
        return query, key, masks.documents(pieces.document_ids([h.query.shape[2] for h in group])), None
    lengths = (one.query.shape[2], one.key.shape[2])
    known = _identity(one.mask, one.triangle, lengths)
    if known not in rules:
        rules[known] = rule_of(one.mask, one.triangle, lengths)
    rule, bias = rules[known]
    if one.rule is not None:
        rule = one.rule if rule is None else rule & one.rule
    if one.bias is not None:
        bias = one.bias.detach() + (0 if bias is None else bias)
    return one.query, one.key, rule, bias


def _kind_by_mask(part: Part) -> str:
    """ "causal" where the rule lets no query see what comes after it."""
    queries, keys, rule = part.query.shape[2], part.key.shape[2], part.rule
    if rule is None or queries != keys or queries < 2:
        return "self"
    if bool(rule.tile(slice(0, 1), slice(1, keys), (queries, keys), "cpu").any()):
        return "self"  # as with padding: seen at once
    for start in range(0, queries - 1, _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, queries))
        later = torch.arange(start + 1, keys) > torch.arange(rows.start, rows.stop)[:, None]
        tile = rule.tile(rows, slice(start + 1, keys), (queries, keys), "cpu")
        if bool((tile & later).any()):
            return "self"
    return "causal"


def _together(proofs: list[Proof]) -> Proof:
    """The proof of a site from those of its calls."""
    if len(proofs) == 1:
        return proofs[0]
    errors = [p.max_error for p in proofs if p.rows]
    return Proof(sum(p.rows for p in proofs), max(errors, default=NAN), proofs[0].note)


def _identity(mask: Tensor | None, triangle: bool, lengths: tuple[int, int]) -> tuple[Any, ...]:
    """Equal for masks that are the same memory: the layers of a model mostly share one."""
    if mask is None:
        return (None, triangle, lengths)
    return (mask.data_ptr(), mask.dtype, tuple(mask.shape), mask.stride(), triangle, lengths)


def _provenance(
    origin: Origin,
    sites: list[Site],
    prepared: Prepared | None,
    notes: tuple[str, ...],
    left_out: Sequence[LeftOut],
) -> Provenance:
    query = sites[0].query
    seen = [*(site.name for site in sites), *(one.name for one in left_out)]
    versions = {"regard": __version__, "torch": str(torch.__version__)}
    if (transformers := sys.modules.get("transformers")) is not None:
        versions["transformers"] = str(transformers.__version__)
    return Provenance(
        model=origin.name,
        model_class=origin.model_class,
        source=origin.source,
        licence=origin.licence,
        texts=prepared.texts if prepared is not None else (),
        dtype=str(query.dtype).removeprefix("torch."),
        device=str(query.device),
        kernels=tuple(dict.fromkeys(site.kernel for site in sites)),
        doors=tuple(dict.fromkeys(site.door for site in sites)),
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        versions=versions,
        truncated=prepared.truncated if prepared is not None else False,
        notes=(
            *(prepared.notes if prepared is not None else ()),
            *origin.notes,
            *notes,
            *_fast_path(origin, sites),
            *_unseen(origin, seen),
        ),
    )


def _fast_path(origin: Origin, sites: list[Site]) -> tuple[str, ...]:
    """A sentence where the model's fused kernel had to be switched off to see its attention."""
    return (say("notes.fast_path"),) if origin.fused and any(s.door == "torch" for s in sites) else ()


def _unseen(origin: Origin, seen: list[str]) -> tuple[str, ...]:
    """Sentences on what was not seen of the model."""
    module, structure = origin.module, origin.structure
    if module is None or (structure is not None and structure.is_seen(seen)):
        return ()
    return unseen(module, [module.get_submodule(name) for name in seen]).notes()


def _late(parts: list[Part]) -> tuple[str, ...]:
    """A sentence where the model had read tokens before there was a recorder."""
    count = max((h.position.query for p in parts if (h := p.calls[0]).position is not None), default=0)
    return (say("notes.rows_missing", count=count),) if count else ()
