"""Where a recording comes from: what is known of the model before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from torch import nn

from regard.models.loading import Subject
from regard.record import intercept
from regard.record.layers import places_of
from regard.record.structure import Structure
from regard.words import say

_ALIVE = ("module", "tokenizer", "structure")  # what no file can hold


@dataclass(frozen=True)
class Origin:
    """What recordings of a model say about it, and the module itself while there is one."""

    name: str
    model_class: str
    source: str
    licence: str | None
    encoder_decoder: bool
    fused: bool  # whether some module has a kernel that does the projections as well
    notes: tuple[str, ...]
    module: nn.Module | None = None
    tokenizer: Any = None
    places: Mapping[str, Sequence[str]] | None = None  # of modules, when there is no `module`
    structure: Structure | None = None

    @classmethod
    def of(cls, subject: Subject, structure: Structure) -> Self:
        """What is known of `subject`, whose model is made so."""
        model = subject.model
        return cls(
            name=subject.name,
            model_class=type(model).__name__,
            source=subject.source,
            licence=subject.licence,
            encoder_decoder=bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False)),
            fused=intercept.has_fast_path(structure),
            notes=(say("notes.compiled"),) if structure.compiled else (),
            module=model,
            tokenizer=subject.tokenizer,
            structure=structure,
        )

    def facts(self) -> dict[str, Any]:
        """All of it that JSON can hold."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ALIVE}
        return {**known, "places": self.shared()}

    def shared(self) -> Mapping[str, Sequence[str]]:
        """All names of the modules that stand in several places, by the first of them."""
        if self.module is None:
            return self.places or {}
        return places_of(self.module)
