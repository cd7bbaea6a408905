"""The tokens of a picture: its patches by row and column, after what a model puts before them.

    position of patch (r, c) = number of tokens before + r · columns + c

Rows and columns count from 0, from the top left. A stack is believed to read a picture so only when
everything adds up: tokens before, rows × columns of the picture that went in, and tokens after give exactly
the length that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from regard.record.tokens import Tokens
from regard.words import say

# Parameters that are tokens of their own, in the order in which models put them around the patches.
_BEFORE = (
    ("[CLS]", ("cls_token", "class_embedding", "class_token")),
    ("[DIST]", ("distillation_token",)),
    ("[REG]", ("register_tokens",)),
)
_AFTER = (("[DET]", ("detection_tokens",)),)


def patches_of(
    model: nn.Module, site: str, inputs: Mapping[str, Tensor], items: int, length: int
) -> Tokens | None:
    """Tokens of the picture that the stack of `site` reads, or None when that can not be told."""
    pixels = inputs.get("pixel_values")
    if pixels is None or pixels.ndim != 4 or pixels.shape[0] != items:
        return None
    tower, config = _tower(model, site)
    size = getattr(config, "patch_size", None)
    if tower is None or hasattr(config, "mask_ratio"):  # masked autoencoders shuffle
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, list | tuple) else ()
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        return None
    rows, columns = pixels.shape[2] // sides[0], pixels.shape[3] // sides[1]
    before, after = _own(tower, _BEFORE), _own(tower, _AFTER)
    if not rows * columns or len(before) + rows * columns + len(after) != length:
        return None
    named = [say("tokens.patch", row=row, column=column) for row in range(rows) for column in range(columns)]
    special = (True,) * len(before) + (False,) * len(named) + (True,) * len(after)
    return Tokens((*before, *named, *after), special, (0,) * length, (-1,) * length, (None,) * length)


def _tower(model: nn.Module, site: str) -> tuple[nn.Module | None, Any]:
    """The stack around a site that reads patches, as far out as it is of one configuration."""
    names = site.split(".") if site else []
    around = [model]
    for name in names:
        around.append(getattr(around[-1], name))
    tower, config = None, None
    for module in reversed(around):
        own = getattr(module, "config", None)
        if config is None and getattr(own, "patch_size", None) is not None:
            tower, config = module, own
        elif config is not None and own is config:
            tower = module
    return tower, config


def _own(tower: nn.Module, wanted: tuple[tuple[str, tuple[str, ...]], ...]) -> list[str]:
    """Names of the tokens that the tower has as parameters."""
    held: dict[str, int] = {}
    for name, parameter in tower.named_parameters():
        held[name.rpartition(".")[2]] = parameter.numel() // max(1, parameter.shape[-1])
    found = []
    for label, names in wanted:
        count = max((held.get(name, 0) for name in names), default=0)
        found += [label] if count == 1 else [f"{label[:-1]} {i}]" for i in range(count)]
    return found
