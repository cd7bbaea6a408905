"""Which number a site has: the one that the model's own modules give it, where that is possible.

`encoder.layer.3.attention.self` is layer 3, also when layers 0 to 2 have no softmax attention. Where
the first number of the names does not tell the sites of a stack apart (one module called for every
layer, as in ALBERT; stages of blocks, as in Swin), sites are counted in the order of their calls.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from torch import nn

_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
_CROSS = re.compile(r"cross|encdec|encoder_attn|encoder_decoder", re.IGNORECASE)

_NAMES = 1 << 13  # that are remembered, with what they say


def numbers_of(names: Sequence[str], kinds: Sequence[str]) -> list[int]:
    """The layer of each call: entries are calls in their order, by their module's qualified name."""
    stacks = [(*stack_of(name), kind) for name, kind in zip(names, kinds, strict=True)]
    times = Counter(stacks)
    apart: dict[tuple[str, str], bool] = defaultdict(lambda: True)
    for (stack, number, kind), count in times.items():
        apart[stack, kind] &= count == 1 and number is not None
    called: Counter[tuple[str, str]] = Counter()
    layers = []
    for stack, number, kind in stacks:
        if number is not None and apart[stack, kind]:
            layers.append(number)
        else:
            layers.append(called[stack, kind])
            called[stack, kind] += 1
    return layers


def places_of(model: nn.Module) -> dict[str, list[str]]:
    """All names of the modules that stand in several places (Zamba's shared block), by the first of them."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, module in model.named_modules(remove_duplicate=False):
        names[id(module)].append(name)
    return {found[0]: found for found in names.values() if len(found) > 1}


def names_of_calls(
    places: Mapping[str, Sequence[str]], names: Sequence[str], *, ended: bool = True
) -> list[str]:
    """The names, where a module that stands in several places is called once for each.

    `names` are those of the called modules, in the order of the calls, each module by its first name. When a
    run never `ended`, the last places may not have been reached.
    """
    times = Counter(names)
    ahead = {
        name: iter(places[name])
        for name, count in times.items()
        if name in places and (len(places[name]) == count or (not ended and len(places[name]) > count))
    }
    return [next(ahead[name]) if name in ahead else name for name in names]


def kind_of(module: nn.Module, name: str, causal: bool) -> str:
    """ "cross" when the module says so in its attributes or name; else "causal" or "self"."""
    says = getattr(module, "is_cross_attention", None)
    if says or (says is None and _is_called_cross(f"{name} {type(module).__name__}")):
        return "cross"
    return "causal" if causal else "self"


@lru_cache(_NAMES)
def _is_called_cross(name: str) -> bool:
    return _CROSS.search(name) is not None


@lru_cache(_NAMES)
def stack_of(name: str) -> tuple[str, int | None]:
    """The name up to its first number, and that number."""
    found = _NUMBER.search(name)
    return (name[: found.start()], int(found[1])) if found else (name, None)
