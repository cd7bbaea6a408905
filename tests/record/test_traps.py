"""What goes wrong in other recorders of attention: each line of that list, with the value that is right."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers.modeling_utils import AttentionInterface

import families
import regard
from regard.errors import InvalidArgument, NothingToRecord, UnfaithfulRecording
from regard.record import intercept, interface
from regard.show.payload import payload

NAMED = {family.name: family for family in families.families()}
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}  # two float32 kernels


def built(name: str, implementation: str | None = None, **changes: Any) -> tuple[Any, dict[str, Tensor]]:
    family = NAMED[name]
    family = families.Family(**{**vars(family), "config": {**family.config, **changes}})
    with families.quiet():
        model = families.build(family, implementation)
    return model, families.inputs_of(family, model)


# The fast kernel of today gives no weights


def test_the_fast_kernel_returns_no_weights_and_its_recording_has_them_and_says_how() -> None:
    model, inputs = built("llama")
    assert model.config._attn_implementation == "sdpa"
    own = []
    model.layers[0].self_attn.register_forward_hook(lambda module, args, output: own.append(output[1]))
    recording = regard.record(model, inputs)
    assert own == [None]
    assert recording.provenance.kernels == ("sdpa",)
    assert recording.proof.rows > 0
    eager, _ = built("llama", "eager")
    with torch.no_grad():
        expected = eager(**inputs, output_attentions=True).attentions
    for layer in recording.layers:
        torch.testing.assert_close(recording.weights(layer=layer), expected[layer][0], **CLOSE)


# Fields are found by name


class Returning(nn.Module):
    """A model whose softmax is its own, with a field of cross-attention that is there and empty."""

    def __init__(self, *order: str) -> None:
        super().__init__()
        self.config = SimpleNamespace(output_attentions=False, model_type="returning")
        self.attention = OwnAttention()
        self.order = order

    def forward(self, x: Tensor, output_attentions: bool = False, return_dict: bool = True) -> Any:
        states, weights = self.attention(x)
        fields = {"attentions": (weights,), "cross_attentions": (), "hidden_states": (states[:, None],)}
        return SimpleNamespace(states=states, **{name: fields[name] for name in self.order})


class OwnAttention(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(x @ x.mT, -1)
        return weights @ x, weights[:, None]


@pytest.mark.parametrize(
    "order",
    [("attentions", "cross_attentions"), ("cross_attentions", "hidden_states", "attentions")],
)
def test_attention_is_the_field_of_that_name_wherever_it_stands(order: tuple[str, ...]) -> None:
    x = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))
    recording = regard.record(Returning(*order), x)
    assert [(site.name, site.kind) for site in recording.sites] == [("attention", "self")]
    torch.testing.assert_close(recording.weights(layer=0, head=0), torch.softmax(x @ x.mT, -1)[0])


# Padding on the left


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_rows_of_padding_on_the_left_see_nothing_and_are_in_no_picture_nor_mean(kernel: str) -> None:
    model, inputs = built("llama", kernel)
    assert inputs["attention_mask"][1].tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    recording = regard.record(model, inputs)
    alone = regard.record(model, {"input_ids": inputs["input_ids"][1:, 2:]})
    site = recording.site(0)
    axis = recording.sequences[site.queries]
    assert axis.spans == (range(0, 9), range(2, 9))  # the mark
    assert recording.shape(0, item=1) == (4, 7, 7)
    torch.testing.assert_close(recording.weights(layer=0, item=1), alone.weights(layer=0), **CLOSE)
    mean = recording.overview(layer=0, item=1, size=1, reduce="mean")
    torch.testing.assert_close(mean.flatten(), torch.full((4,), 1 / 7), **CLOSE)  # rows sum to 1
    if kernel == "sdpa":
        whole = site.scores(1).weights(slice(0, 9), slice(0, 9), site.lse_of(1, slice(0, 9)))
        assert whole[:, :2].count_nonzero() == 0
        assert bool((site.lse_of(1, slice(0, 2)) == -torch.inf).all())


def test_a_token_masked_out_in_the_middle_is_no_padding_and_gets_nothing() -> None:
    model, inputs = built("llama")
    inputs["attention_mask"][0, 4] = 0
    weights = regard.record(model, inputs).weights(layer=1)
    assert weights.shape == (4, 9, 9)
    assert weights[:, 5:, 4].count_nonzero() == 0
    torch.testing.assert_close(weights[:, 5:].sum(-1), torch.ones(4, 4), **CLOSE)


# T5 and unequal stacks


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_t5_has_two_encoder_two_decoder_and_two_cross_attentions_with_their_bias(kernel: str) -> None:
    model, inputs = built("t5", kernel, num_layers=2, num_decoder_layers=2)
    recording = regard.record(model, inputs)
    assert [site.kind for site in recording.sites].count("self") == 2
    assert [site.kind for site in recording.sites].count("causal") == 2
    assert [site.kind for site in recording.sites].count("cross") == 2
    assert len(recording.sites) == 6
    for kind in ("self", "causal"):
        for layer in (0, 1):  # the bias of the first layer serves all
            bias = recording.site(layer, kind).bias
            assert bias is not None
            assert float(bias.std()) > 0.1
    eager, _ = built("t5", "eager", num_layers=2, num_decoder_layers=2)
    with torch.no_grad():
        own = eager(**inputs, output_attentions=True)
    for kind, true in (
        ("self", own.encoder_attentions),
        ("causal", own.decoder_attentions),
        ("cross", own.cross_attentions),
    ):
        for layer in (0, 1):
            torch.testing.assert_close(recording.weights(layer=layer, kind=kind), true[layer][0], **CLOSE)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_stacks_of_unequal_depth_lose_no_layer(name: str) -> None:
    sizes = (
        {"num_layers": 2, "num_decoder_layers": 3}
        if name == "t5"
        else {"encoder_layers": 2, "decoder_layers": 3}
    )
    model, inputs = built(name, **sizes)
    inputs["decoder_input_ids"] = inputs["input_ids"][:, :6]
    recording = regard.record(model, inputs)
    layers = {k: [s.layer for s in recording.sites if s.kind == k] for k in ("self", "causal", "cross")}
    assert layers == {"self": [0, 1], "causal": [0, 1, 2], "cross": [0, 1, 2]}
    for layer in range(3):
        assert recording.shape(layer, "causal") == (4, 6, 6)
        assert recording.shape(layer, "cross") == (4, 6, 9)


# Sinks, softcap, gates


def test_weights_and_the_learned_sink_sum_to_one_and_weights_alone_do_not() -> None:
    model, inputs = built("gpt_oss")
    recording = regard.record(model, inputs)
    weights, sink = recording.weights(layer=0), recording.sink(layer=0)
    assert float(weights.sum(-1).min()) < 0.96
    torch.testing.assert_close(weights.sum(-1) + sink, torch.ones_like(sink), **CLOSE)
    header = payload(recording).header
    assert header["sites"][0]["sinks"] is True


def test_what_ran_is_recorded_where_a_kernel_drops_the_softcap(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AttentionInterface._global_mapping["sdpa"]

    def dropping(*args: Any, softcap: float | None = None, **kwargs: Any) -> Any:
        return real(*args, **kwargs)  # as older versions do; today's raises

    for name in ("sdpa", "another"):
        monkeypatch.setitem(AttentionInterface._global_mapping, name, dropping)
    cap = {"attn_logit_softcapping": 0.02}
    (fast, inputs), (eager, _) = built("gemma2", "eager", **cap), built("gemma2", "eager", **cap)
    fast.config._attn_implementation = "sdpa"
    dropped, capped = regard.record(fast, inputs), regard.record(eager, inputs)
    assert (dropped.site(0).kernel, dropped.site(0).softcap) == ("sdpa", None)
    assert (capped.site(0).kernel, capped.site(0).softcap) == ("eager", 0.02)
    assert dropped.proof.rows > 0
    assert dropped.proof.max_error < 1e-5
    assert capped.proof.max_error < 1e-5
    assert float((dropped.weights(layer=0) - capped.weights(layer=0)).abs().max()) > 0.05
    fast.config._attn_implementation = "another"  # of which nobody knows that it drops it
    with pytest.raises(UnfaithfulRecording, match=r"layers\.0\.self_attn"):
        regard.record(fast, inputs)


@pytest.mark.parametrize("share", [0.49, 4.0])
def test_a_model_whose_rows_do_not_sum_to_one_is_refused(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = built("llama")
    real = AttentionInterface._global_mapping["sdpa"]

    def gated(*args: Any, **kwargs: Any) -> Any:
        output, weights = real(*args, **kwargs)
        return output * share, weights

    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", gated)
    with pytest.raises(UnfaithfulRecording, match=rf"multiplied by {share:g}, as by a gate"):
        regard.record(model, inputs)
    returned = torch.softmax(torch.randn(1, 2, 4, 4), -1) * share
    with pytest.raises(UnfaithfulRecording, match="rows that are no weights"):
        regard.record(Fixed(returned), torch.zeros(1, 4))


class Fixed(nn.Module):
    """A model that returns these numbers as its attention."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.config = SimpleNamespace(output_attentions=False, model_type="fixed")
        self.attention, self.weights = OwnAttention(), weights

    def forward(self, x: Tensor, output_attentions: bool = False, return_dict: bool = True) -> Any:
        return SimpleNamespace(states=x, attentions=(self.weights,))


# Generation


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Gemma3"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_is_one_triangle_with_true_key_positions(family: str, cache: str) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}TextConfig" if family == "Gemma3" else f"{family}Config")
    sizes: dict[str, Any] = {
        "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "max_position_embeddings": 64,
    }  # fmt: skip
    if family != "Llama":
        sizes["sliding_window"] = 4
    if family == "Gemma3":
        sizes["layer_types"] = ["sliding_attention", "full_attention"]
    model = getattr(transformers, f"{family}ForCausalLM")(config(**sizes)).eval()
    prompt = torch.randint(3, 60, (1, 8), generator=torch.Generator().manual_seed(2))
    recording = regard.record(
        model, prompt, generate={"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache}
    )
    ids = torch.tensor([recording.tokens().ids])
    assert ids.shape == (1, 13)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        true = model(ids, output_attentions=True, use_cache=False).attentions
    for layer in (0, 1):
        weights = recording.weights(layer=layer)
        torch.testing.assert_close(weights, true[layer][0], **CLOSE)
        assert weights.shape == (4, 13, 13)
        assert weights.triu(1).count_nonzero() == 0
        if family == "Mistral" or (family, layer) == ("Gemma3", 0):
            assert weights.tril(-4).count_nonzero() == 0  # a window of four tokens, its own among them


# A batch


def test_a_batch_of_two_is_looked_at_item_by_item_without_padding() -> None:
    model, inputs = built("bert")
    recording = regard.record(model, inputs)
    assert recording.items == 2
    assert [len(recording.tokens(item)) for item in (0, 1)] == [9, 7]
    assert [recording.weights(layer=0, item=item).shape for item in (0, 1)] == [(4, 9, 9), (4, 7, 7)]
    with pytest.raises(InvalidArgument, match=r"item must lie in \[0, 2\); got 2"):
        recording.weights(layer=0, item=2)
    with pytest.raises(InvalidArgument, match=r"rows .*7"):
        recording.weights(layer=0, item=1, rows=8)
    alone = regard.record(model, {"input_ids": inputs["input_ids"][1:, :7]})
    torch.testing.assert_close(recording.weights(layer=1, item=1), alone.weights(layer=1), **CLOSE)


# Nothing leaks


def state() -> tuple[Any, ...]:
    """What a recorder changes for its time, in all."""
    return (
        F.scaled_dot_product_attention,
        F.multi_head_attention_forward,
        dict(vars(AttentionInterface)),
        dict(AttentionInterface._global_mapping),
        torch.backends.mha.get_fastpath_enabled(),
        interface._listeners,
        intercept._listeners,
    )


def test_other_models_and_threads_are_as_they_were_also_after_an_error() -> None:
    before = state()
    model, inputs = built("llama")
    other, others_inputs = built("bert")
    plain = other(**others_inputs).last_hidden_state
    inside, release, seen = threading.Event(), threading.Event(), []

    def wait(*_: Any) -> None:
        inside.set()
        release.wait(10)
        raise RuntimeError("in the middle")

    handle = model.layers[1].register_forward_pre_hook(wait)

    def record() -> None:
        try:
            regard.record(model, inputs)
        except RuntimeError as error:
            seen.append(str(error))

    thread = threading.Thread(target=record)
    thread.start()
    inside.wait(10)
    assert torch.equal(other(**others_inputs).last_hidden_state, plain)  # while the other one records
    with regard.Recorder(other) as recorder:
        other(**others_inputs)
    release.set()
    thread.join()
    handle.remove()
    assert seen == ["in the middle"]
    assert len(recorder.recording.sites) == 2
    assert state() == before
    for module in (*model.modules(), *other.modules()):
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert regard.record(model, inputs).proof.rows > 0


# What a page shows of it


def test_what_may_be_seen_is_taken_from_the_model_and_not_assumed_causal() -> None:
    for name, causal in (("bert", False), ("llama", True)):
        recording = regard.record(*built(name))
        header = payload(recording).header
        assert {site["causal"] for site in header["sites"]} == {causal}
        assert (recording.weights(layer=0).triu(1).count_nonzero() > 0) is not causal


def test_nothing_is_shown_where_nothing_could_be_recorded() -> None:
    class Hidden(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x @ x.mT, -1) @ x

    with pytest.raises(NothingToRecord, match="Hidden has no attention to record"):
        regard.record(Hidden(), torch.randn(1, 4, 4))
