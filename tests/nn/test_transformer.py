"""Transformer: parallel scores, writing with and without a cache, padding, errors."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InvalidArgument
from regard.nn import Transformer

KINDS = ["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]


def model(**options) -> Transformer:
    torch.manual_seed(0)
    return Transformer(23, 16, 4, 2, max_length=40, **options).eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 23, shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(("positions", "layers"), [*itertools.product(KINDS, [0, 1])])
def test_cached_scores_equal_parallel_scores_at_every_step(positions, layers):
    transformer, x = model(positions=positions, num_encoder_layers=layers, num_kv_heads=2), tokens(2, 9)
    source = tokens(2, 7) if layers else None
    with torch.no_grad():
        whole, memory = transformer(x, source), transformer.encode(source)
        cache = transformer.new_cache()
        for i in range(9):
            step = transformer.decode(x[:, i : i + 1], memory, cache=cache)
            assert_close(step, whole[:, i : i + 1], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("positions", "window"), [*itertools.product(KINDS, [None, (3, 0)])])
def test_writing_with_a_cache_equals_writing_without(positions, window):
    transformer, x = model(positions=positions, window=window), tokens(3, 4)
    assert torch.equal(transformer.generate(x, 12), transformer.generate(x, 12, use_cache=False))


@pytest.mark.parametrize(("positions", "layers"), [*itertools.product(KINDS, [0, 1])])
def test_left_padding_changes_no_item_of_a_batch(positions, layers):
    transformer, short, long = (
        model(positions=positions, num_encoder_layers=layers),
        tokens(1, 3),
        tokens(1, 6),
    )
    batch = torch.cat([torch.cat([tokens(1, 2)[:, :1].expand(1, 3), short], dim=1), long])
    kept = torch.tensor([[False] * 3 + [True] * 3, [True] * 6])
    source = tokens(2, 5) if layers else None
    source_kept = torch.arange(5) < torch.tensor([[5], [3]]) if layers else None
    together = transformer.generate(batch, 8, key_mask=kept, source=source, source_key_mask=source_kept)
    for row, (alone, item) in enumerate(((short, slice(0, 1)), (long, slice(1, 2)))):
        read = None if source is None else source[item, : int(source_kept[row].sum())]
        assert torch.equal(
            together[row, 6:], transformer.generate(alone, 8, source=read)[0, alone.shape[1] :]
        )
        logits = transformer(batch, source, key_mask=kept, source_key_mask=source_kept)[
            row, -alone.shape[1] :
        ]
        assert_close(logits, transformer(alone, read)[0], rtol=0, atol=2e-6)


def test_the_future_changes_no_score():
    transformer, x = model(positions="rotary"), tokens(1, 8)
    changed = x.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 23
    assert torch.equal(transformer(x)[:, :5], transformer(changed)[:, :5])


def test_greedy_writing_takes_the_best_token_each_time():
    transformer, x = model(), tokens(2, 3)
    written = transformer.generate(x, 6)
    best = transformer(written).argmax(-1)
    assert torch.equal(written[:, 3:], best[:, 2:-1])
    assert torch.equal(transformer.generate(x, 6, temperature=1.0, top_k=1), written)


def test_drawing_is_repeatable_with_a_generator_and_follows_the_probabilities():
    transformer, x = model(scaled=True), tokens(1, 3)
    draws = [
        transformer.generate(x, 5, temperature=1.0, generator=torch.Generator().manual_seed(7))
        for _ in range(2)
    ]
    assert torch.equal(*draws)
    many = transformer.generate(x.expand(40_000, -1), 1, temperature=1.0)[:, -1]
    frequency = many.bincount(minlength=23) / 40_000
    assert_close(frequency, transformer.next_token(x)[0], rtol=0, atol=0.0125)  # five standard errors


def test_next_token_probabilities_are_the_softmax_of_the_last_scores():
    transformer, x = model(), tokens(2, 3)
    p = transformer.next_token(x)
    assert_close(p, transformer(x)[:, -1].softmax(-1))
    assert_close(p.sum(-1), torch.ones(2))


def test_an_ended_item_is_filled_and_all_ended_stops():
    transformer, x = model(), tokens(2, 3)
    written = transformer.generate(x, 10)
    eos = int(written[0, 4])
    got = transformer.generate(x, 10, eos=eos)
    for row in range(2):
        ends = (written[row, 3:] == eos).nonzero()
        end = 3 + int(ends[0]) if len(ends) else got.shape[1]
        assert torch.equal(got[row, :end], written[row, :end])
        assert (got[row, end:] == eos).all()
    first = int((written[0, 3:] == eos).nonzero()[0])
    assert transformer.generate(x[:1], 10, eos=eos).shape[1] == 3 + first + 1


def test_writing_nothing_gives_the_tokens_back():
    assert torch.equal(model().generate(tokens(2, 3), 0), tokens(2, 3))


def test_writing_leaves_the_mode_as_it_was():
    transformer = model(dropout=0.5).train()
    assert torch.equal(transformer.generate(tokens(1, 3), 5), transformer.generate(tokens(1, 3), 5))
    assert transformer.training
    assert all(module.training for module in transformer.modules())
    with pytest.raises(InvalidArgument):
        transformer.generate(tokens(1, 3), 5, temperature=-1.0)
    assert transformer.training


def test_the_output_is_tied_unless_told_otherwise():
    assert model().output is None
    untied = model(tied=False)
    assert untied.output.weight.shape == (23, 16)
    assert not torch.equal(untied(tokens(1, 3)), untied.embedding.logits(torch.zeros(1, 3, 16)))


def test_source_and_target_share_an_embedding_unless_vocabularies_differ():
    assert model(num_encoder_layers=1).source_embedding is None
    other = model(num_encoder_layers=1, source_vocab_size=50)
    assert other(tokens(1, 3), torch.tensor([[49, 30]])).shape == (1, 3, 23)


def test_state_survives_saving(tmp_path):
    one, other, x = model(positions="relative"), model(positions="relative"), tokens(1, 5)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    torch.save(one.state_dict(), tmp_path / "model.pt")
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(one(x), other(x))


def test_every_option_of_a_block_is_handed_on():
    transformer = model(
        positions="rotary",
        norm="rms",
        activation="swiglu",
        qk_norm="rms",
        num_kv_heads=1,
        bias=False,
        d_hidden=24,
    )
    assert transformer(tokens(2, 5)).isfinite().all()
    assert not any("bias" in name for name, _ in transformer.named_parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": "absolute"}, "positions must be one of 'sinusoidal', .*; got 'absolute'"),
        ({"positions": "learned"}, "max_length must say how many learned positions there are; got None"),
    ],
)
def test_impossible_models_are_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        Transformer(23, 16, 4, 2, **options)


def test_impossible_calls_are_refused():
    with pytest.raises(InvalidArgument, match="source is needed by an encoder–decoder; got none"):
        model(num_encoder_layers=1)(tokens(1, 3))
    with pytest.raises(InvalidArgument, match="source needs num_encoder_layers > 0; got one"):
        model()(tokens(1, 3), tokens(1, 3))
    with pytest.raises(InvalidArgument, match=r"at least one token to begin with; got \(1, 0\)"):
        model().generate(tokens(1, 0), 3)
    with pytest.raises(InvalidArgument, match="max_new_tokens must be 0 or more; got -1"):
        model().generate(tokens(1, 2), -1)
    with pytest.raises(InvalidArgument, match="key_mask must end with True in every row; pad on the left"):
        model().generate(tokens(1, 2), 3, key_mask=torch.tensor([[True, False]]))
    with pytest.raises(InvalidArgument, match="learned positions end at max_length=40; got a sequence of 41"):
        model(positions="learned").generate(tokens(1, 38), 5)
