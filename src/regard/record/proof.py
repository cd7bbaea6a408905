"""The proof of a site: a few rows, recomputed from what is recorded, against what the model went on with.

    error = max |Σ_j weights_ij v_j − output_i| / max |v|

As a share of the largest value mixed, the error does not depend on the scale of the model. It stays on the
model's device and is read once, at the end of the run, so that no kernel has to wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import UnfaithfulRecording
from regard.record.call import Call, NotUnderstood
from regard.record.site import NAN, Proof
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ROWS = 4
"""Query positions compared at each site: the first, the last, and random ones."""

# What two correct kernels may differ by: products in the model's number type, sums over up to 10⁵ keys.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 8e-3, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Evidence:
    """What is kept of a comparison until the end of the run: a few rows of output, recomputed and real."""

    mixed: Float[Tensor, "b h r v"]
    seen: Float[Tensor, "b h r v"]
    error: Float[Tensor, ""]
    rows: int
    dtype: torch.dtype
    unknown: tuple[str, ...]


def tolerance_of(dtype: torch.dtype) -> float:
    """What two correct ways to compute in this type may differ by, as a share of the largest value."""
    return _TOLERANCE.get(dtype, 5e-2)


def choose_rows(queries: int, count: int, random: Random) -> Int[Tensor, " r"]:
    """The first and the last query position, and random ones between, at most `count` in all."""
    inner = random.sample(range(1, queries - 1), min(max(0, count - 2), max(0, queries - 2)))
    return torch.tensor(
        sorted({0, queries - 1, *inner})[: max(count, 1)] if queries else [], dtype=torch.long
    )


def gather(call: Call, output: Float[Tensor, "b q h v"], rows: Int[Tensor, " r"]) -> Evidence:
    """Recompute some rows of a call and compare them with its output."""
    expected = (call.query.shape[0], call.query.shape[2], call.query.shape[1], call.value.shape[3])
    if tuple(output.shape) != expected:
        raise NotUnderstood(f"output: {tuple(output.shape)}, not {expected}")
    mixed, empty = _attend(call, rows)
    seen = output.detach().index_select(1, rows).transpose(1, 2).to(mixed.dtype)
    if (
        empty is not None
    ):  # kernels disagree on rows that see nothing (0, a mean, no number); nobody looks there
        mixed, seen = mixed.masked_fill(empty, 0.0), seen.masked_fill(empty, 0.0)
    difference = (mixed - seen).abs_()
    largest = call.value.detach().abs().amax().to(mixed.dtype)
    error = difference.amax() / largest.clamp_min(torch.finfo(mixed.dtype).tiny)
    return Evidence(mixed, seen, error, rows.numel(), output.dtype, call.unknown)


def judge(evidence: Evidence, site: str) -> Proof:
    """The proof that the evidence amounts to, or `UnfaithfulRecording` with site, error and likely cause."""
    error = float(evidence.error)
    if error <= tolerance_of(evidence.dtype):
        return Proof(evidence.rows, error)
    raise UnfaithfulRecording(
        say("errors.unfaithful", site=site, error=f"{error:.2g}", cause=_cause(evidence))
    )


def unchecked(note: str) -> Proof:
    """The proof of a site where nothing could be compared, and why."""
    return Proof(0, NAN, note)


def _attend(call: Call, rows: Int[Tensor, " r"]) -> tuple[Float[Tensor, "b h r v"], Tensor | None]:
    """softmax(scale · q kᵀ …) v for some rows, and which of them see no key at all."""
    query, key, value = call.query.detach(), call.key.detach(), call.value.detach()
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    b, h, _, d = query.shape
    g, k = key.shape[1], key.shape[2]
    some = query.index_select(2, rows).to(wide) * call.scale
    if h == g:
        logits = torch.matmul(some, key.to(wide).transpose(2, 3))  # (b, h, r, k)
    else:
        logits = torch.matmul(some.reshape(b, g, -1, d), key.to(wide).transpose(2, 3)).reshape(b, h, -1, k)
    if call.softcap is not None:
        logits = torch.tanh(logits / call.softcap) * call.softcap
    if call.bias is not None:
        logits = logits + _rows_of(call.bias, rows)
    empty = None
    if call.triangle:
        logits = logits.masked_fill(torch.arange(k, device=rows.device) > rows[:, None], -torch.inf)
    if call.rule is not None:
        seen = [
            call.rule.tile(slice(r, r + 1), slice(0, k), call.lengths, rows.device) for r in rows.tolist()
        ]
        logits = logits.masked_fill(~torch.cat(seen, dim=-2), -torch.inf)
        empty = (logits == -torch.inf).all(-1, keepdim=True)
    if call.mask is not None:
        mask = _rows_of(call.mask, rows)
        if mask.dtype == torch.bool:
            logits = logits.masked_fill(~mask, -torch.inf)
            empty = ~mask.any(-1, keepdim=True)
        else:
            logits = logits + mask
    if call.sinks is None:
        weights = torch.softmax(logits, -1)
    else:
        sinks = call.sinks.detach().to(wide)
        sinks = sinks[:, None] if sinks.ndim == 1 else sinks.index_select(2, rows)
        sinks = sinks[..., None].expand(b, h, logits.shape[2], 1)
        weights = torch.softmax(torch.cat([logits, sinks], -1), -1)[..., :-1]
    if h == g:
        return torch.matmul(weights, value.to(wide)), empty
    mixed = torch.matmul(weights.reshape(b, g, -1, k), value.to(wide))
    return mixed.reshape(b, h, -1, value.shape[-1]), empty


def _rows_of(tensor: Tensor, rows: Int[Tensor, " r"]) -> Tensor:
    return tensor if tensor.shape[-2] == 1 else tensor.detach().index_select(-2, rows)


def _cause(evidence: Evidence) -> str:
    """What most likely lies between the recorded attention and the model's."""
    mixed, seen = evidence.mixed, evidence.seen
    if not bool(torch.isfinite(seen).all()):
        return say("errors.cause_not_a_number")
    if evidence.unknown:
        return say("errors.cause_arguments", names=", ".join(evidence.unknown))
    tolerance = 10 * tolerance_of(evidence.dtype)
    for axes, key in (((0, 1, 2, 3), "errors.cause_scaled"), ((0, 2, 3), "errors.cause_per_head")):
        factor = (mixed * seen).sum(axes, keepdim=True) / mixed.square().sum(axes, keepdim=True)
        if bool((factor * mixed - seen).abs().amax() <= tolerance * seen.abs().amax()):
            return say(key, factor=f"{float(factor.flatten()[0]):.3g}")
    factor = (mixed * seen).sum(3, keepdim=True) / mixed.square().sum(3, keepdim=True)
    if bool((factor * mixed - seen).abs().amax() <= tolerance * seen.abs().amax()):
        return say("errors.cause_sink")
    return say("errors.cause_other")
