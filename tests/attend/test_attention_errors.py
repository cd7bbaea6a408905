"""What cannot be right is refused in one sentence: argument, expected, got, remedy."""

from __future__ import annotations

import math

import pytest
import torch

import regard
from regard import masks
from regard.errors import InvalidArgument

X = torch.zeros(2, 4, 5, 8)
SAYS = [
    (
        {"query": X[0]},
        "query, key and value must have the shape (batch, heads, length, channels); got (4, 5, 8), "
        "(2, 4, 5, 8) and (2, 4, 5, 8). Add an axis with tensor[:, None] for one head.",
    ),
    (
        {"value": X[:, :, :3]},
        "key and value must agree in batch, heads and length; got (2, 4, 5) and (2, 4, 3).",
    ),
    ({"query": X[:1]}, "query and key must have the same batch size; got 1 and 2."),
    ({"query": X[..., :4]}, "query and key must have as many channels; got 4 and 8."),
    (
        {"key": X[:, :3], "value": X[:, :3]},
        "the query heads must be a multiple of the key heads in number; got 4 and 3.",
    ),
    (
        {"query": X.double()},
        "must share one floating dtype; got torch.float64, torch.float32 and torch.float32.",
    ),
    ({"query": X.int(), "key": X.int(), "value": X.int()}, "must share one floating dtype; got torch.int32"),
    ({"query": X.to("meta")}, "must lie on one device; got meta, cpu and cpu."),
    (
        {"mask": torch.ones(5, 5)},
        "mask must be boolean, True = may attend; got torch.float32. Write mask != 0 for a 0/1 mask, or "
        "hand numbers to be added to the scores over as bias.",
    ),
    (
        {"mask": torch.ones(5, 5, dtype=torch.int64)},
        "mask must be boolean, True = may attend; got torch.int64.",
    ),
    ({"mask": [[True]]}, "mask must be a boolean tensor or a rule of regard.masks; got list."),
    (
        {"mask": torch.ones(4, 5, 5, dtype=torch.bool)},
        "mask must have the shape (queries, keys) or (batch, heads, queries, keys); got (4, 5, 5). "
        "Write mask[:, None] for one per item, mask[None] for one per head.",
    ),
    ({"mask": torch.ones(5, 4, dtype=torch.bool)}, "mask must broadcast to (2, 4, 5, 5); got (5, 4)."),
    (
        {"mask": masks.dense(torch.ones(4, 5, dtype=torch.bool))},
        "mask must broadcast to (2, 4, 5, 5); got (4, 5).",
    ),
    ({"mask": masks.padding([1, 2, 3])}, "key_mask must have the shape (batch, keys) = (2, 5); got (3, 5)."),
    (
        {"bias": torch.ones(5, 5, dtype=torch.bool)},
        "bias must be a floating tensor, added to the scores; got torch.bool.",
    ),
    (
        {"bias": torch.ones(4, 5, 5)},
        "bias must have the shape (queries, keys) or (batch, heads, queries, keys)",
    ),
    (
        {"key_mask": torch.ones(2, 5)},
        "key_mask must be a boolean tensor, True = no padding; got torch.float32.",
    ),
    (
        {"key_mask": torch.ones(2, 4, dtype=torch.bool)},
        "key_mask must have the shape (batch, keys) = (2, 5); got (2, 4).",
    ),
    (
        {"window": 3},
        "window must be a pair (left, right) of numbers of keys; got 3. Write (n, 0) for the last n.",
    ),
    (
        {"window": (-1, 0)},
        "window must count keys ≥ 0 on either side, or None for no limit; got (-1, 0). "
        "The own position is always visible and not counted.",
    ),
    (
        {"temperature": -1.0},
        "temperature must be ≥ 0, 0 for the argmax and math.inf for the uniform mean; got -1.0.",
    ),
    (
        {"temperature": math.nan},
        "temperature must be ≥ 0, 0 for the argmax and math.inf for the uniform mean; got nan.",
    ),
    ({"scale": math.inf}, "scale must be a finite number, None for 1 / √channels; got inf."),
    ({"softcap": 0.0}, "softcap must be a finite number > 0, None for no cap; got 0.0."),
    ({"dropout_p": 1.5}, "dropout_p must lie in [0, 1]; got 1.5."),
]


@pytest.mark.parametrize(("given", "says"), SAYS, ids=[says[:40] for _, says in SAYS])
def test_the_error_names_argument_expected_got_and_remedy(given, says):
    arguments = {"query": X, "key": X, "value": X} | given
    tensors = [arguments.pop(name) for name in ("query", "key", "value")]
    with pytest.raises(InvalidArgument) as raised:
        regard.attention(*tensors, **arguments)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
