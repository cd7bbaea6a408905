"""What was heard: a call of an attention, and the run of a model that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from regard.errors import UnfaithfulRecording
from regard.record import pieces, proof
from regard.record.call import Call
from regard.record.choosing import Calls
from regard.record.heads import Cut
from regard.record.shelf import Shelf
from regard.record.site import Proof
from regard.words import say

if TYPE_CHECKING:
    from regard.attend.mask import Mask
    from regard.record.generation import Chain, Position


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
    evidence: proof.Evidence | Proof  # what speaks for it, judged at the end, or already
    versions: tuple[int, ...]
    place: pieces.Place
    rule: Mask | None = None
    door: str = "interface"
    position: Position | None = None  # in a chain of steps
    heads: Cut | None = None  # which are kept; None is all

    @classmethod
    def of(
        cls,
        call: Call,
        name: str,
        kind: str,
        evidence: proof.Evidence | Proof,
        shelf: Shelf,
        door: str = "interface",
        position: Position | None = None,
        heads: Cut | None = None,
    ) -> Self:
        """Keep what is needed of `call`, on `shelf`."""
        place = pieces.Place.of(call.query)  # of the whole, before it is cut
        if heads is not None:
            call = heads.call(call)
        query, key = shelf.keep(call.query, call.key)
        # A step of training moves parameters: sinks, and now and then a bias.
        mask, bias = _lasting(call.mask), _lasting(call.bias)
        return cls(
            name=name,
            kind=kind,
            query=query,
            key=key,
            mask=mask,
            triangle=call.triangle,
            scale=call.scale,
            kernel=call.kernel,
            bias=bias,
            softcap=call.softcap,
            sinks=None if call.sinks is None else call.sinks.detach().clone(),
            evidence=evidence,
            versions=_versions(query, key, mask, bias),
            place=place,
            rule=call.rule,
            door=door,
            position=position,
            heads=heads,
        )

    @property
    def whole(self) -> bool:
        """Whether this is certainly a whole attention, and no piece of one."""
        plain = self.mask is None and self.rule is None and self.bias is None and not self.triangle
        return not plain or self.query.shape[2] != self.key.shape[2]


@dataclass(eq=False)
class Run:
    """One call of the model: the tensors that it was given, and the attentions heard."""

    inputs: dict[str, Tensor]
    heard: list[Heard] = field(default_factory=list)
    calls: Calls = field(default_factory=Calls)
    chain: Chain | None = None  # the steps of a generation, which hold what was heard
    apart: bool = False  # a part of the model, called by itself
    given: dict[str, Any] = field(default_factory=dict)  # all arguments, of a run that showed nothing, ...
    output: Tensor | None = None  # ... what it gave, ...
    chance: Tensor | None = None  # ... where the generator of random numbers stood before it, ...
    state: tuple[int, ...] = ()  # ... and how often what it read had been written to
    number: int = 0  # among the runs of a block

    @property
    def empty(self) -> bool:
        """Whether nothing was heard."""
        if self.chain and any(step.heard or step.calls.left_out for step in self.chain.steps):
            return False
        return not self.heard and not self.calls.left_out


def prove(heard: Heard) -> Proof:
    """What the evidence of a call amounts to; raises `UnfaithfulRecording` where it speaks against it."""
    if versions_of(heard) != heard.versions:
        raise UnfaithfulRecording(say("errors.changed_in_place", site=heard.name))
    if isinstance(heard.evidence, Proof):
        return heard.evidence
    return proof.judge(heard.evidence, heard.name)


def versions_of(heard: Heard) -> tuple[int, ...]:
    """How often each tensor of a call was changed in place."""
    return _versions(heard.query, heard.key, heard.mask, heard.bias)


def _versions(*tensors: Tensor | None) -> tuple[int, ...]:
    """How often each was changed in place; inference tensors do not count."""
    return tuple(0 if t is None or t.is_inference() else t._version for t in tensors)


def _lasting(added: Tensor | None) -> Tensor | None:
    """A mask or bias as it is now, where it is a parameter: a step of training moves it."""
    if added is None or not added.requires_grad:
        return added
    held = added._base if added._is_view() and added._base is not None else added
    return added.detach().clone() if held.is_leaf else added
