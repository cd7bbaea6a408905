"""What a recording does not hold, said with it: layers without softmax attention, attentions unseen.

Found from the model's modules alone, so that no hook slows the run or changes its path. In a hybrid model
such as Qwen3-Next, three of four layers keep a state instead of attending (Yang et al. 2025, "Gated Delta
Networks"): they are named here, and the fourth keeps the number that it has in the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from torch import nn

from regard.words import say

_ATTENTION = re.compile(
    r"(?:attention|attn)(?!.*(?:structure|output|mask|bias|norm|embeddings?)$)", re.IGNORECASE
)
_SHOWN = 4


@dataclass(frozen=True)
class Unseen:
    """Modules in which no attention was seen, each as (qualified name, class)."""

    layers: tuple[tuple[str, str], ...]  # beside layers in which one was seen
    attentions: tuple[tuple[str, str], ...]  # elsewhere, and called attention by their class

    def notes(self) -> tuple[str, ...]:
        """The same as sentences."""
        keyed = (("notes.layers_without", self.layers), ("notes.attentions_unseen", self.attentions))
        return tuple(say(key, names=_listed(modules)) for key, modules in keyed if modules)


def unseen(model: nn.Module, seen: Iterable[nn.Module]) -> Unseen:
    """What there is in `model` besides the modules whose attention was `seen`."""
    known = {id(module) for module in seen}
    holding: set[int] = set()
    _mark(model, known, holding)
    layers: list[tuple[str, str]] = []
    attentions: list[tuple[str, str]] = []
    visited = set(known)
    ahead = [("", model, False)]
    while ahead:
        name, module, inside = ahead.pop()  # inside: within a layer of a stack already
        if id(module) in visited:
            continue
        visited.add(id(module))
        if id(module) not in holding:
            if is_called_attention(type(module).__name__):
                attentions.append((name, type(module).__name__))
                continue
        elif isinstance(module, nn.ModuleList) and not inside:
            inside = True
            without = [layer for layer in module if id(layer) not in holding]
            if without:
                visited.update(map(id, without))
                ours = {type(part) for layer in module if layer not in without for part in layer.children()}
                numbers = {id(layer): _below(name, number) for number, layer in module.named_children()}
                layers.extend((numbers[id(layer)], _mixer(layer, ours)) for layer in without)
        for child, part in reversed(module._modules.items()):
            # Most modules are small parts such as a projection: not worth a name.
            if part is not None and (part._modules or is_called_attention(type(part).__name__)):
                ahead.append((_below(name, child), part, inside))
    return Unseen(tuple(layers), tuple(attentions))


def count_attentions(model: nn.Module) -> int:
    """How many modules are called attention by their class and hold no other such module."""
    named = [module for module in model.modules() if is_called_attention(type(module).__name__)]
    return sum(not any(has_attention(part) for part in module.children()) for module in named)


def has_attention(model: nn.Module) -> bool:
    """Whether a module of the model is called attention by its class."""
    return any(is_called_attention(type(module).__name__) for module in model.modules())


@cache
def is_called_attention(class_name: str) -> bool:
    """Whether a class of modules calls itself an attention."""
    return _ATTENTION.search(class_name) is not None


def _mark(module: nn.Module, known: set[int], holding: set[int]) -> bool:
    """Put into `holding` every module that is known or has such a one below it."""
    holds = id(module) in known
    for part in module._modules.values():
        if part is not None and (part._modules or id(part) in known) and _mark(part, known, holding):
            holds = True
    if holds:
        holding.add(id(module))
    return holds


def _mixer(layer: nn.Module, ours: set[type[nn.Module]]) -> str:
    """The class of the part that a layer has in place of an attention; its own where that is not plain."""
    others = [part for part in layer.children() if type(part) not in ours]
    return type(others[0] if others else layer).__name__


def _below(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child


def _listed(modules: tuple[tuple[str, str], ...]) -> str:
    """Names by class, numbers joined: "layers.0, 1, 2 (GatedDeltaNet)"."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, kind in modules:
        found = re.search(r"(?:^|(?<=\.))\d+(?=\.|$)", name)
        key = (name[: found.start()], name[found.end() :], kind) if found else (name, "", kind)
        groups.setdefault(key, []).append(found[0] if found else "")
    shown = [f"{a}{', '.join(n)}{z} ({kind})" for (a, z, kind), n in list(groups.items())[:_SHOWN]]
    return "; ".join([*shown, "…"] if len(groups) > _SHOWN else shown)
