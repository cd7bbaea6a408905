"""KVCache: what is appended comes back, in order, and what cannot be held is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import InvalidArgument
from regard.nn import KVCache


def rows(start: int, n: int, channels: int = 3) -> torch.Tensor:
    """Keys of n tokens whose numbers tell their position."""
    return torch.arange(start, start + n, dtype=torch.float32)[None, None, :, None].expand(2, 1, n, channels)


@given(chunks=st.lists(st.integers(0, 90), max_size=8), window=st.none() | st.integers(0, 40))
@settings(deadline=None, max_examples=60)
def test_every_append_hands_out_the_new_keys_and_all_or_the_window_before_them(chunks, window):
    cache, length = KVCache(window=window), 0
    for new in chunks:
        keys, values = cache.append(rows(length, new), rows(length, new, 5) + 0.5)
        first = 0 if window is None else max(0, length - window)
        length += new
        assert keys[0, 0, :, 0].tolist() == list(range(first, length))
        assert torch.equal(values[..., 0], keys[..., 0] + 0.5)
        assert (cache.start, cache.length, len(cache)) == (first, length, length)


def test_tensors_handed_out_never_change():
    for cache in (KVCache(), KVCache(capacity=500), KVCache(window=3)):
        handed, copies = [], []
        for position in range(200):
            keys, values = cache.append(rows(position, 1), rows(position, 1))
            handed += [keys, values]
            copies += [keys.clone(), values.clone()]
        assert all(torch.equal(one, other) for one, other in zip(handed, copies, strict=True))


def test_memory_of_a_sliding_cache_does_not_grow_with_length():
    cache = KVCache(window=8)
    for position in range(1000):
        keys, _ = cache.append(rows(position, 1), rows(position, 1))
    assert keys.untyped_storage().nbytes() <= 2 * 3 * 4 * (2 * 8 + 1)


def test_growing_copies_each_key_a_bounded_number_of_times():
    cache, storages = KVCache(), set()
    for position in range(5000):
        keys, _ = cache.append(rows(position, 1), rows(position, 1))
        storages.add(keys.data_ptr())
    assert len(storages) <= 8  # 64, 128, … 8192


def test_reset_forgets_and_takes_another_shape():
    cache = KVCache(capacity=4)
    cache.append(rows(0, 4), rows(0, 4))
    cache.reset()
    keys, _ = cache.append(rows(7, 1, channels=2), rows(7, 1))
    assert keys.shape == (2, 1, 1, 2)
    assert len(cache) == 1


def test_read_gives_what_is_stored():
    cache = KVCache()
    cache.append(rows(0, 3), rows(0, 3))
    assert torch.equal(cache.read()[0], rows(0, 3))


def test_overflow_says_how_much_was_held_and_what_to_do():
    cache = KVCache(capacity=4)
    cache.append(rows(0, 3), rows(0, 3))
    with pytest.raises(
        InvalidArgument, match=r"at most capacity=4 tokens; got 3 \+ 2\. Give a larger capacity"
    ):
        cache.append(rows(3, 2), rows(3, 2))
    assert len(cache) == 3  # as it was
    cache.append(rows(3, 1), rows(3, 1))


def test_another_batch_or_dtype_is_refused():
    cache = KVCache()
    cache.append(rows(0, 1), rows(0, 1))
    with pytest.raises(InvalidArgument, match=r"key must have shape \(2, 1, 1, 3\).* got \(1, 1, 1, 3\)"):
        cache.append(rows(1, 1)[:1], rows(1, 1)[:1])
    with pytest.raises(
        InvalidArgument, match=r"torch\.float32 like what the cache holds; got .*torch\.float64"
    ):
        cache.append(rows(1, 1).double(), rows(1, 1).double())
    with pytest.raises(
        InvalidArgument, match=r"the first three equal; got \(2, 1, 1, 3\) and \(2, 1, 2, 3\)"
    ):
        cache.append(rows(1, 1), rows(1, 2))


def test_gradients_are_refused_with_the_remedy():
    key = rows(0, 1).clone().requires_grad_()
    with pytest.raises(InvalidArgument, match=r"keeps no gradients.*torch\.no_grad\(\)"):
        KVCache().append(key, key)
    with torch.no_grad():
        KVCache().append(key, key)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity must be at least 1; got 0"),
        ({"window": -1}, "window must be 0 or more; got -1"),
        ({"capacity": 1, "window": 1}, "capacity or window, not both"),
    ],
)
def test_impossible_caches_are_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        KVCache(**options)


def test_reading_an_empty_cache_is_refused():
    with pytest.raises(InvalidArgument, match="the cache is empty"):
        KVCache().read()
