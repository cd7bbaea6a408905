"""Where a recording comes from: what is known of the model before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from torch import nn

from regard.models.loading import Subject
from regard.record import intercept
from regard.record.layers import places_of
from regard.record.watch import is_compiled
from regard.words import say

_ALIVE = ("module", "tokenizer")  # what a file cannot hold


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

    @classmethod
    def of(cls, subject: Subject) -> Self:
        """What is known of `subject`."""
        model = subject.model
        return cls(
            name=subject.name,
            model_class=type(model).__name__,
            source=subject.source,
            licence=subject.licence,
            encoder_decoder=bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False)),
            fused=intercept.has_fast_path(model.modules()),
            notes=(say("notes.compiled"),) if is_compiled(model) else (),
            module=model,
            tokenizer=subject.tokenizer,
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
