"""Encoder and Decoder: what a stack adds to its blocks."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard import masks
from regard.errors import InvalidArgument
from regard.nn import Alibi, Decoder, Encoder, RelativePositions, RotaryPositions

X, MEMORY = torch.randn(2, 9, 16).double(), torch.randn(2, 7, 16).double()


def test_an_encoder_is_its_blocks_and_a_last_norm_if_pre_norm():
    for norm_first in (True, False):
        encoder = Encoder(16, 4, 3, norm_first=norm_first).double()
        x = X
        for block in encoder.blocks:
            x = block(x)
        assert_close(encoder(X), encoder.norm(x) if norm_first else x, rtol=0, atol=0)


def test_padding_never_reaches_the_real_positions():
    encoder = Encoder(16, 4, 2).double().eval()
    kept = torch.arange(9) < torch.tensor([[9], [6]])
    other = X.clone()
    other[1, 6:] = torch.nan
    out, same = encoder(X, key_mask=kept), encoder(other, key_mask=kept)
    assert_close(same[0], out[0], rtol=0, atol=0)
    assert_close(same[1, :6], out[1, :6], rtol=0, atol=1e-12)
    assert_close(encoder(X[1:, :6])[0], out[1, :6], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("window", [None, (3, 0)])
@pytest.mark.parametrize("positions", [None, RotaryPositions(4), Alibi(4), RelativePositions(4, causal=True)])
def test_cached_decoder_equals_uncached_at_every_step(cross, window, positions):
    torch.manual_seed(0)
    options = {"cross": cross, "window": window, "positions": positions, "num_kv_heads": 2}
    decoder, memory = Decoder(16, 4, 2, **options).eval(), MEMORY.float() if cross else None
    for capacity in (None, 9):
        with torch.no_grad():
            whole, cache, done = decoder(X.float(), memory), decoder.new_cache(capacity=capacity), 0
            for new in (3, 1, 4, 1):
                step = decoder(X.float()[:, done : done + new], memory, cache=cache)
                assert_close(step, whole[:, done : done + new], rtol=0, atol=2e-6)
                done += new


def test_a_decoder_is_causal_exactly():
    decoder, changed = Decoder(16, 4, 2, cross=True).double(), X.clone()
    changed[:, 6:] = 100
    assert torch.equal(decoder(changed, MEMORY)[:, :6], decoder(X, MEMORY)[:, :6])


def test_weights_of_every_layer_come_on_request():
    got = Decoder(16, 4, 3, cross=True).double()(X, MEMORY, return_weights=True)
    assert [w.shape for w in got.weights] == [(2, 4, 9, 9)] * 3
    assert [w.shape for w in got.memory_weights] == [(2, 4, 9, 7)] * 3
    assert not got.weights[1].triu(1).any()
    got = Encoder(16, 4, 2).double()(X, mask=masks.window(1, 1), return_weights=True)
    assert len(got.weights) == 2
    assert not got.weights[0].triu(2).any()
    assert Decoder(16, 4, 1).double()(X, return_weights=True).memory_weights is None


def test_additions_to_the_stream_are_scaled_by_depth_when_pre_norm():
    torch.manual_seed(0)
    for norm_first, factor in ((True, (2 * 8) ** -0.5), (False, 1.0)):
        stack = Encoder(64, 4, 8, norm_first=norm_first)
        for block in stack.blocks:
            bound = (6 / 128) ** 0.5
            assert block.attention.output.weight.abs().max() <= bound * factor
            assert block.attention.output.weight.std().item() == pytest.approx(
                bound * factor / 3**0.5, rel=0.05
            )


def test_gradients_reach_every_parameter():
    for stack, inputs in ((Encoder(16, 4, 2), (X,)), (Decoder(16, 4, 2, cross=True), (X, MEMORY))):
        stack.double()(*inputs).sum().backward()
        assert all(p.grad is not None for p in stack.parameters())


def test_wrong_depths_are_refused():
    with pytest.raises(InvalidArgument, match="num_layers must be at least 1; got 0"):
        Encoder(16, 4, 0)
    with pytest.raises(
        InvalidArgument, match=r"one entry for each of the 2 blocks; got 1\. Make it with new_cache"
    ):
        Decoder(16, 4, 2)(X.float(), cache=Decoder(16, 4, 1).new_cache())
