"""What a model is made of: all that a recorder asks of its modules, answered by one walk through them.

A walk costs what it costs to bring modules into the processor's cache, and a short text leaves no time for
several. Nothing is kept from one recording to the next: modules may have changed in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Self

from torch import nn

from regard.record.unseen import is_called_attention


@dataclass(frozen=True, eq=False)
class Structure:
    """The modules of a model, outermost first."""

    modules: list[nn.Module]
    names: dict[int, str]  # qualified names by identity, as named_modules says them
    types: set[type[nn.Module]]
    compiled: bool  # whether torch.compile was applied to the model or to a part of it
    shares: bool  # whether some module stands in several places
    attentions: list[str]  # names of modules that are called attention by their class
    stacks: list[tuple[str, list[str]]]  # names of module lists, and of what they hold

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """What `model` is made of now."""
        modules: list[nn.Module] = []
        names: dict[int, str] = {}
        types: set[type[nn.Module]] = set()
        attentions: list[str] = []
        stacks: list[tuple[str, list[str]]] = []
        compiled = shares = False
        ahead: list[tuple[str, nn.Module]] = [("", model)]
        while ahead:
            name, module = ahead.pop()
            if id(module) in names:
                shares = True
                continue
            names[id(module)] = name
            modules.append(module)
            kind, parts = type(module), module._modules
            types.add(kind)
            if is_called_attention(kind.__name__):
                attentions.append(name)
            if module._compiled_call_impl is not None or "_orig_mod" in parts:
                compiled = True
            if not parts:
                continue
            prefix = f"{name}." if name else ""
            children = [(prefix + child, part) for child, part in parts.items() if part is not None]
            if isinstance(module, nn.ModuleList):
                stacks.append((name, [child for child, _ in children]))
            children.reverse()
            ahead.extend(children)
        return cls(modules, names, types, compiled, shares, attentions, stacks)

    def has(self, *types: type[nn.Module]) -> bool:
        """Whether some module is of one of these classes."""
        return any(issubclass(kind, types) for kind in self.types)

    def is_seen(self, names: list[str]) -> bool:
        """Whether the modules of these names certainly leave no attention and no layer of a stack unseen.

        Where a module stands in several places, names alone do not tell.
        """
        if self.shares:
            return False
        holding: set[str] = set()  # what was seen, and all in which it lies
        for name in names:
            holding.update(_around(name, holding))
        for name in self.attentions:
            if name not in holding and not any(outer in names for outer in _around(name, ())):
                return False
        return all(name not in holding or holding.issuperset(layers) for name, layers in self.stacks)


def _around(name: str, known: Collection[str]) -> Iterator[str]:
    """The name and those of all modules in which it lies, from the inside out, up to what is `known`."""
    while name not in known:
        yield name
        if not name:
            return
        name = name.rpartition(".")[0]
