"""What a rule says of a rectangle without a look at its cells is what its cells say."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import masks
from regard.attend.mask import Mask
from regard.attend.tiles import Scores

RULES = {
    "causal": masks.causal(),
    "window": masks.window(3, 2),
    "left": masks.window(None, 1),
    "right": masks.window(4, None),
    "none": masks.window(None, None),
    "both": masks.causal() & masks.window(5, 5),
    "padding": masks.causal() & masks.padding([7]),
    "prefix": masks.causal() | masks.prefix(3),
}


@given(
    rule=st.sampled_from(sorted(RULES)),
    lengths=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_a_verdict_is_what_the_cells_say(rule: str, lengths: tuple[int, int], data: st.DataObject) -> None:
    mask: Mask = RULES[rule]
    rows, cols = (_slice(data, length) for length in lengths)
    tile = mask.tile(rows, cols, lengths)
    verdict = mask.verdict(rows, cols, lengths)
    assert verdict is None or bool((tile == verdict).all())
    if rule in ("causal", "window", "left", "right", "none"):
        assert (verdict is None) == (bool(tile.any()) and not bool(tile.all()))


@given(rule=st.sampled_from(sorted(RULES)), heads=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_log_sum_exp_skips_only_what_is_forbidden(rule: str, heads: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(heads, 12, 4, generator=generator) for _ in range(2))
    scores = Scores(query, key, 0.5, mask=RULES[rule])
    logits = 0.5 * query.double() @ key.double().mT
    logits = logits.masked_fill(~RULES[rule].full((12, 12)).reshape(-1, 12, 12)[:1], -torch.inf)
    torch.testing.assert_close(
        scores.log_sum_exp(slice(2, 11)).double(), torch.logsumexp(logits, -1)[:, 2:11], rtol=1e-5, atol=1e-5
    )


def _slice(data: st.DataObject, length: int) -> slice:
    start = data.draw(st.integers(0, length - 1))
    return slice(start, data.draw(st.integers(start + 1, length)))
