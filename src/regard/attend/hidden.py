"""Not-a-number and infinity behind a mask: they never reach an output or a gradient.

A weight of 0 is no protection, since 0 · NaN = NaN. Two measures together are:

- `without_hidden` sets to 0 what nobody sees: keys and values that no query may attend to, and queries that
may attend
  to no key. It costs one pass over them, and none where no rule hides anything.
- `repaired` looks at a result that is not finite (a sum tells). If a key is to blame, it computes
once more
  without the bad keys, and the rows that may see none of them get that; the others keep what they had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.mask import Mask
from regard.attend.problem import Problem
from regard.attend.reference import Attended

if TYPE_CHECKING:
    from jaxtyping import Bool


def without_hidden(p: Problem) -> Problem:
    """The same problem with zeros for everything that takes no part in it."""
    if p.window is None and p.mask is None and p.bias is None and not p.causal:
        if p.key_mask is None:
            return p
        seen = p.key_mask[:, None, :, None]  # (b, 1, k, 1)
        sees = seen.any(dim=2, keepdim=True)  # (b, 1, 1, 1)
        return p.but(query=p.query.where(sees, 0), key=p.key.where(seen, 0), value=p.value.where(seen, 0))
    allowed = p.allowed()
    if allowed is None or p.nothing:
        return p
    allowed = allowed.reshape((1,) * (4 - allowed.ndim) + tuple(allowed.shape))
    seen = allowed.any(dim=2)[..., None]  # (b, h, k, 1)
    if seen.shape[1] != 1 and p.group > 1:
        seen = seen.reshape(seen.shape[0], p.key.shape[1], p.group, -1, 1).any(dim=2)
    sees = allowed.any(dim=3, keepdim=True)  # (b, h, q, 1)
    return p.but(query=p.query.where(sees, 0), key=p.key.where(seen, 0), value=p.value.where(seen, 0))


def suspicious(p: Problem, result: Attended) -> bool:
    """Whether a result is not finite, as a sum tells. Waits for it.

    Where every row was computed against every key, a bad score spoils all channels of its row, a bad value
    its channel in all rows, the last one too: one channel and one row tell. They are few: one thread does it.
    """
    output, wide = result.output.detach(), torch.promote_types(result.output.dtype, torch.float32)
    if not output.numel():
        return False
    if (
        not p.hides and p.query.shape[2] == p.key.shape[2]
    ):  # the kernel skips what comes later, but for values
        total = output[:, :, -1].sum(dtype=wide)
    elif p.window is None and not isinstance(p.mask, Mask):
        total = output[..., 0].sum(dtype=wide) + output[:, :, -1].sum(dtype=wide)
    else:
        total = output.sum(dtype=wide)
    return not abs(total.item()) < float("inf")


def repaired(p: Problem, attend: Callable[[Problem], Attended], result: Attended) -> Attended:
    """The result with those rows computed anew that may see no key that is not finite."""
    if p.hides:  # the hidden may be finite and still overflow
        p = without_hidden(p)
        result = attend(p)
        if not suspicious(p, result):
            return result
    good = p.key.isfinite().all(dim=-1) & p.value.isfinite().all(dim=-1)  # (b, g, k)
    if bool(good.all()):
        return result
    clean = good[..., None]
    again = attend(p.but(key=p.key.where(clean, 0), value=p.value.where(clean, 0)))
    sees_bad = _sees_any(p, ~good)
    if not bool(sees_bad.any()):
        return again

    def pick(first: Tensor | None, second: Tensor | None, seen: Tensor) -> Tensor | None:
        return None if first is None or second is None else torch.where(seen, first, second)

    output = torch.where(sees_bad[..., None], result.output, again.output)
    return Attended(
        output,
        pick(result.weights, again.weights, sees_bad[..., None]),
        pick(result.lse, again.lse, sees_bad),
    )


def _sees_any(p: Problem, bad: Bool[Tensor, "b g k"]) -> Bool[Tensor, "b h q"]:
    """The rows that may attend to any of the bad keys."""
    columns = bad.any(dim=1).any(dim=0).nonzero()[:, 0]  # few, as a rule
    bad = bad[:, :, columns].repeat_interleave(p.group, dim=1)[:, :, None, :]  # (b, h, 1, few)
    allowed = p.allowed()
    if allowed is None:
        return bad.any(dim=-1).expand(p.query.shape[:3])
    allowed = allowed.expand(*allowed.shape[:-1], p.key.shape[2])[..., columns]
    return (allowed & bad).any(dim=-1).expand(p.query.shape[:3])
