"""The third door: models with a softmax of their own, through the weights that they return when asked.

BLOOM, MPT, DeBERTa, XLNet and others multiply their queries and keys inside their modules, where
nothing can be watched. They are run with `output_attentions`, and a site holds what they returned, as
logits:

    weights[i, j] = exp(log w_ij − lse_i),   queries and keys without channels

so everything that reads a recording reads these too. Nothing is recomputed, and the proof says so. What is
checked: rows are weights (not negative, sum 1), a self-attention has as many keys as queries. Some models
return something else under the same name (compressed, hashed or windowed attention): they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.attend import masks
from regard.errors import NothingToRecord, UnfaithfulRecording
from regard.models.loading import Subject
from regard.record import pieces, proof
from regard.record.assemble import Part
from regard.record.heard import Heard
from regard.record.unseen import has_attention
from regard.words import say

_SOMETHING_ELSE = frozenset({"longformer", "led", "nystromformer", "yoso", "mra", "reformer", "rwkv"})
_POOLS = frozenset({"funnel"})  # queries may be fewer than keys
_SLACK = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def can_be_asked(model: nn.Module) -> bool:
    """Whether a model may return its weights: one of transformers' whose weights are those of all pairs."""
    config = getattr(model, "config", None)
    if not hasattr(config, "output_attentions"):
        return False
    return getattr(config, "model_type", "") not in _SOMETHING_ELSE and has_attention(model)


def ask(subject: Subject, given: dict[str, Any], inputs: Mapping[str, Tensor]) -> tuple[list[Part], Any]:
    """Run the model once more; the sites by the weights that it returns, and all that it returns.

    Memory: all weights, b · h · q · k numbers a site: it is what such models make anyway.
    """
    reason = ""
    with _hearing(subject.model) as outputs:
        try:
            result = subject.model(**given, output_attentions=True, return_dict=True)
        except (TypeError, ValueError) as error:
            result, reason = None, " ".join(str(error).split())[:200]
    names = {tensor.untyped_storage().data_ptr(): name for name, tensor in reversed(outputs)}
    parts = [
        _part(subject.model, names.get(weights.untyped_storage().data_ptr(), ""), field, weights, inputs)
        for field, value in (_fields(result) if result is not None else ())
        for weights in _tensors(value)
    ]
    if not parts:
        model = type(subject.model).__name__
        key = "errors.returns_no_weights" if reason else "errors.nothing_to_record"
        raise NothingToRecord(say(key, model=model, reason=reason))
    return parts, result


@contextmanager
def _hearing(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """What the modules return that may be weights, innermost first, with their names."""
    heard: list[tuple[str, Tensor]] = []

    def hook_of(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            values = output if isinstance(output, tuple) else ()
            heard.extend((name, value) for value in values if isinstance(value, Tensor) and value.ndim == 4)

        return hook

    handles = [module.register_forward_hook(hook_of(name)) for name, module in model.named_modules()]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def _fields(result: Any) -> Iterator[tuple[str, Any]]:
    """The fields that hold weights, also those of results within the result (the two towers of BLIP)."""
    for field, value in vars(result).items():
        if "attentions" in field:
            yield field, value
        elif hasattr(value, "to_tuple"):
            yield from _fields(value)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The weights in a field of a result, layer by layer; refused where they are not of all pairs."""
    for one in value if isinstance(value, tuple | list) else ():
        if isinstance(one, Tensor) and one.ndim == 4:
            yield one.detach()
        elif one is not None:
            raise NothingToRecord(say("errors.returns_something_else", shape=_shape(one)))


def _part(model: nn.Module, name: str, field: str, weights: Tensor, inputs: Mapping[str, Tensor]) -> Part:
    """One site, checked."""
    cross = "cross" in field
    b, h, queries, keys = weights.shape
    pools = getattr(getattr(model, "config", None), "model_type", "") in _POOLS
    if not cross and queries != keys and not pools:
        raise NothingToRecord(say("errors.returns_something_else", shape=_shape(weights)))
    wide = weights.to(torch.float64 if weights.dtype == torch.float64 else torch.float32)
    sums, slack = wide.sum(-1), _SLACK.get(weights.dtype, 5e-2)
    off = (sums - 1).abs().masked_fill(sums == 0, 0.0)
    worst = float(off.max()) if off.numel() else 0.0
    if not worst <= slack or bool((wide < 0).any()):
        raise UnfaithfulRecording(say("errors.returned_rows", site=name or field, sum=f"{1 + worst:.3g}"))
    later = torch.ones(queries, keys, dtype=torch.bool, device=weights.device).triu(1)
    own = _own_rows(field, weights, inputs)
    causal = not cross and queries == keys > 1 and not bool((wide * later * own).any())
    nothing = wide.new_empty(b, h, 0, 0)
    heard = Heard(
        name=name,
        kind="cross" if cross else "causal" if causal else "self",
        query=nothing,
        key=nothing,
        mask=None,
        triangle=False,
        scale=1.0,
        kernel="own",
        bias=None,
        softcap=None,
        sinks=None,
        evidence=proof.unchecked(say("notes.as_returned")),
        versions=(0,) * 4,
        place=pieces.Place.of(nothing),
        door="returned",
    )
    shapes = (wide.new_empty(b, h, queries, 0), wide.new_empty(b, h, keys, 0))
    return Part([heard], *shapes, masks.causal() if causal else None, wide.log())


def _own_rows(field: str, weights: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Which rows are of tokens: those of padding on the left see nothing, and give anything to anyone."""
    name = "decoder_attention_mask" if "decoder" in field else "attention_mask"
    kept = inputs.get(name)
    if kept is None or kept.shape != (weights.shape[0], weights.shape[2]):
        return torch.ones(1, dtype=torch.bool, device=weights.device)
    return kept.bool().to(weights.device)[:, None, :, None]


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
