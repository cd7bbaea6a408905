"""The path of decoding: few queries against so many keys that all cores should read them.

The kernel gives a core whole heads. Where there are fewer key heads than cores, the keys are cut into ranges,
attended to side by side as if each were a head, and merged by their lse. The heads of a group are rows of one
product, so that their keys are read once. Dao et al. 2023, "Flash-Decoding for long-context inference".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from regard.attend import fused
from regard.attend.flash import flash
from regard.attend.merge import merge_stacked
from regard.attend.problem import Problem
from regard.attend.reference import Attended

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

FEWEST_KEYS = 1024  # in a range


def takes(p: Problem) -> bool:
    """Few rows for each key head, many keys, cores to spare; in inference, and without weights."""
    batch, kv_heads, keys, channels = p.key.shape
    return (
        not torch.compiler.is_compiling()
        and keys >= 2 * FEWEST_KEYS
        and p.group * p.query.shape[2] <= fused.FEW_ROWS
        and batch * kv_heads < torch.get_num_threads()
        and 1 in (batch, kv_heads)
        and channels == p.value.shape[3]
        and p.query.stride(3) == p.key.stride(3) == p.value.stride(3) == 1
        and not p.weights
        and fused.takes(p)
        and not fused.wants_grad(p)
    )


def attend(p: Problem) -> Attended:
    """Output, and lse where wanted."""
    kv_heads, keys = p.key.shape[1:3]
    tasks = p.key.shape[0] * kv_heads
    ranges = min(-(-torch.get_num_threads() // tasks), keys // FEWEST_KEYS)
    query = p.query.reshape(tasks, 1, -1, p.query.shape[3])
    key, value = p.key.flatten(0, 1), p.value.flatten(0, 1)  # (tasks, k, d)
    bias = fused.fold_rows(fused.as_bias(p)[0], p, p.query.shape[2])
    if bias is not None:
        bias = bias.expand(p.key.shape[0], kv_heads, -1, -1).flatten(0, 1)  # (tasks, rows or 1, k)

    def attend_to(
        start: int, stop: int, count: int
    ) -> tuple[Float[Tensor, "tasks count rows d"], Float[Tensor, "tasks count rows"]]:
        """The keys from start to stop, in so many ranges."""
        keys, values = (x[:, start:stop].unflatten(1, (count, -1)) for x in (key, value))  # type: ignore[no-untyped-call]
        added, empty = None, None
        if bias is not None:
            added = bias[:, :, start:stop].unflatten(2, (count, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
            empty = added.amax(dim=-1) == -math.inf
        many = query.expand(-1, count, -1, -1)
        return flash(many, keys, values, added, empty, False, p.scale / p.temperature, False)

    even = keys - keys % ranges
    parts = [attend_to(0, even, ranges)]
    if even < keys:
        parts.append(attend_to(even, keys, 1))
    output, lse = (torch.cat(x, dim=1).transpose(0, 1) for x in zip(*parts, strict=True))
    merged = merge_stacked(output, lse)
    shape = p.query.shape
    whole = None if merged.lse is None else merged.lse.reshape(shape[:3])
    return Attended(merged.output.reshape(shape), lse=whole if p.lse else None)
