"""From the calls heard in one run of a model to a Recording."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

import regard
from regard.errors import UnfaithfulRecording
from regard.models.loading import Subject
from regard.record import proof
from regard.record.call import Call
from regard.record.layers import numbers_of
from regard.record.recording import Provenance, Recording
from regard.record.rule import rule_of
from regard.record.sequences import Prepared, Sequences
from regard.record.site import Proof, Site
from regard.words import say

if TYPE_CHECKING:
    from regard.attend.mask import Mask

_SPARE = 1.3  # a view is kept as it is while the storage behind it is at most this much larger


@dataclass(frozen=True)
class Heard:
    """One call of an attention, without its values: what a site will be made of."""

    name: str
    kind: str
    query: Tensor
    key: Tensor
    mask: Tensor | None
    triangle: bool
    scale: float
    kernel: str
    bias: Tensor | None
    softcap: float | None
    sinks: Tensor | None
    dropout: float
    evidence: proof.Evidence | None
    versions: tuple[int, int]

    @classmethod
    def of(cls, call: Call, name: str, kind: str, evidence: proof.Evidence | None) -> Self:
        """Keep what is needed of `call`, detached from any graph."""
        query, key = _own(call.query), _own(call.key)
        return cls(
            name=name,
            kind=kind,
            query=query,
            key=key,
            mask=call.mask,
            triangle=call.triangle,
            scale=call.scale,
            kernel=call.kernel,
            bias=call.bias,
            softcap=call.softcap,
            sinks=call.sinks,
            dropout=call.dropout,
            evidence=evidence,
            versions=(_version(query), _version(key)),
        )


@dataclass
class Run:
    """One call of the model: the tensors that it was given, and the attentions heard."""

    inputs: dict[str, Tensor]
    heard: list[Heard] = field(default_factory=list)


def assemble(subject: Subject, run: Run, prepared: Prepared | None) -> Recording:
    """The Recording of a run; raises `UnfaithfulRecording` for the first site that does not agree."""
    sequences = Sequences(run.inputs, subject.tokenizer, prepared)
    rules: dict[tuple[Any, ...], tuple[Mask | None, Tensor | None]] = {}
    layers = numbers_of([h.name for h in run.heard], [h.kind for h in run.heard])
    sites = []
    for heard, layer in zip(run.heard, layers, strict=True):
        lengths = (heard.query.shape[2], heard.key.shape[2])
        key = _identity(heard.mask, heard.triangle, lengths)
        if key not in rules:
            rules[key] = rule_of(heard.mask, heard.triangle, lengths)
        rule, bias = rules[key]
        items = heard.query.shape[0]
        sites.append(
            Site(
                name=heard.name,
                layer=layer,
                kind=heard.kind,
                query=heard.query,
                key=heard.key,
                scale=heard.scale,
                mask=rule,
                bias=bias if heard.bias is None else heard.bias.detach() + (0 if bias is None else bias),
                softcap=heard.softcap,
                sinks=None if heard.sinks is None else heard.sinks.detach(),
                kernel=heard.kernel,
                queries=sequences.name_of(lengths[0], items),
                keys=sequences.name_of(lengths[1], items),
                proof=_prove(heard),
            )
        )
    return Recording(tuple(sites), sequences.axes, _provenance(subject, sites, prepared))


def _prove(heard: Heard) -> Proof:
    if (_version(heard.query), _version(heard.key)) != heard.versions:
        raise UnfaithfulRecording(say("errors.changed_in_place", site=heard.name))
    if heard.evidence is not None:
        return proof.judge(heard.evidence, heard.name)
    return proof.unchecked(say("notes.dropout" if heard.dropout > 0 else "notes.no_rows"))


def _identity(mask: Tensor | None, triangle: bool, lengths: tuple[int, int]) -> tuple[Any, ...]:
    """Equal for masks that are the same memory: the layers of a model mostly share one."""
    if mask is None:
        return (None, triangle, lengths)
    return (mask.data_ptr(), mask.dtype, tuple(mask.shape), mask.stride(), triangle, lengths)


def _own(tensor: Tensor) -> Tensor:
    """`tensor` without its graph; a copy when it would keep alive a storage much larger than itself."""
    tensor = tensor.detach()
    needed = tensor.numel() * tensor.element_size()
    return tensor.clone() if tensor.untyped_storage().nbytes() > _SPARE * needed else tensor


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _provenance(subject: Subject, sites: list[Site], prepared: Prepared | None) -> Provenance:
    query = sites[0].query
    versions = {"regard": regard.__version__, "torch": str(torch.__version__)}
    if (transformers := sys.modules.get("transformers")) is not None:
        versions["transformers"] = str(transformers.__version__)
    return Provenance(
        model=subject.name,
        model_class=type(subject.model).__name__,
        source=subject.source,
        licence=subject.licence,
        texts=prepared.texts if prepared is not None else (),
        dtype=str(query.dtype).removeprefix("torch."),
        device=str(query.device),
        kernels=tuple(dict.fromkeys(site.kernel for site in sites)),
        doors=tuple(dict.fromkeys(site.door for site in sites)),
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        versions=versions,
        truncated=prepared.truncated if prepared is not None else False,
    )
