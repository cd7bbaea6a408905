"""Models as they are in use: quantised, of mixed types, compiled, trained, in pipelines and in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

import families
import regard
from regard.errors import NothingToRecord
from regard.record import proof

SIZES: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": None, "max_position_embeddings": 64,
}  # fmt: skip
IDS = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(0))


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 2, **changes})
    return transformers.LlamaForCausalLM(config).eval()


def bert(head: str = "Model") -> Any:
    torch.manual_seed(0)
    return getattr(transformers, f"Bert{head}")(transformers.BertConfig(**SIZES)).eval()


def own(model: Any, ids: Tensor = IDS) -> tuple[Tensor, ...]:
    """The weights of the model's eager attention."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights: tuple[Tensor, ...] = model(ids, output_attentions=True).attentions
    model.set_attn_implementation(before)
    return weights


def agrees(recording: regard.Recording, true: tuple[Tensor, ...], tolerance: float = 1e-5) -> None:
    for layer, expected in enumerate(true):
        for item in range(recording.items):
            difference = (recording.weights(layer=layer, item=item) - expected[item].float()).abs().max()
            assert float(difference) < tolerance


# Number types


@pytest.mark.filterwarnings("ignore:.*quantize_dynamic:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("make", [llama, bert])
def test_a_model_quantised_to_eight_bits_is_recorded_as_it_computes(make: Callable[[], Any]) -> None:
    if "onednn" not in torch.backends.quantized.supported_engines:
        pytest.skip("no engine for quantised layers on this machine")
    plain = make()
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "onednn"
    try:
        quantised = torch.ao.quantization.quantize_dynamic(make(), {nn.Linear}, dtype=torch.qint8)
        assert any("quantized" in type(module).__module__ for module in quantised.modules())
        recording = regard.record(quantised, {"input_ids": IDS})
        true = own(quantised)
    finally:
        torch.backends.quantized.engine = before
    agrees(recording, true)
    assert recording.proof.rows > 0
    assert recording.proof.max_error < 1e-5
    assert float((true[1] - own(plain)[1]).abs().max()) > 1e-4  # eight bits are another model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_within_its_own_rounding_of_the_eager_weights(dtype: torch.dtype) -> None:
    model = llama().to(dtype)
    recording = regard.record(model, {"input_ids": IDS})
    assert recording.site(0).query.dtype == dtype
    agrees(recording, own(model), 4 * torch.finfo(dtype).eps)
    assert recording.proof.rows > 0
    assert recording.proof.max_error < proof.tolerance_of(dtype)


def test_a_layer_may_have_a_number_type_of_its_own(tmp_path: Path) -> None:
    model = llama()
    layer = model.model.layers[1].self_attn.to(torch.bfloat16)

    def narrow(module: Any, args: Any, given: dict[str, Any]) -> Any:
        given["hidden_states"] = given["hidden_states"].bfloat16()
        given["position_embeddings"] = tuple(t.bfloat16() for t in given["position_embeddings"])
        return args, given

    layer.register_forward_pre_hook(narrow, with_kwargs=True)
    layer.register_forward_hook(lambda module, args, output: (output[0].float(), *output[1:]))
    recording = regard.record(model, {"input_ids": IDS})
    assert [site.query.dtype for site in recording.sites] == [torch.float32, torch.bfloat16]
    assert all(site.proof.rows for site in recording.sites)
    recording.save(tmp_path / "mixed.regard")
    again = regard.open(tmp_path / "mixed.regard")
    for layer_number in (0, 1):
        weights = recording.weights(layer=layer_number)
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights.sum(-1), torch.ones(4, 9), rtol=0, atol=1e-5)
        assert torch.equal(weights, again.weights(layer=layer_number))
        assert recording.overview(layer=layer_number, size=3).shape == (4, 3, 3)


# Devices


class Elsewhere(nn.Module):
    """Two attentions of which the second computes on another device, as `device_map` puts it there."""

    def __init__(self, other: torch.device) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(2))
        self.layers[1].to(other)
        self.other = other

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.layers[0](x, x, x, need_weights=False)[0]
        y = x.to(self.other)
        return x + self.layers[1](y, y, y, need_weights=False)[0].to(x.device)


def devices() -> Iterator[torch.device]:
    yield torch.device("cpu", 0)
    if torch.cuda.is_available():
        yield torch.device("cuda")


@pytest.mark.parametrize("other", list(devices()), ids=str)
def test_layers_on_other_devices_are_recorded_where_they_are(other: torch.device, tmp_path: Path) -> None:
    model, x = Elsewhere(other).eval(), torch.randn(2, 5, 16)
    recording = regard.record(model, x)
    assert recording.site(1).query.device.type == other.type
    assert recording.proof.max_error < 1e-5
    recording.save(tmp_path / "two.regard")
    again = regard.open(tmp_path / "two.regard")
    for layer in (0, 1):
        weights = recording.weights(layer=layer, item=1).cpu()
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))
        torch.testing.assert_close(again.weights(layer=layer, item=1), weights)
        assert recording.overview(layer=layer, size=2).shape == (2, 2, 2)


# Training


def step(model: Any) -> list[Tensor]:
    model.zero_grad()
    model(IDS, labels=IDS).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_training_step_with_checkpointing_is_recorded_once_and_trains_as_before(reentrant: bool) -> None:
    model = llama(use_cache=False).train()
    plain = step(model)
    options = {"use_reentrant": reentrant}
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")  # new and old name
    enable = next(getattr(model, name) for name in names if hasattr(model, name))
    try:
        enable(options)
    except TypeError:
        enable(gradient_checkpointing_kwargs=options)
    with regard.Recorder(model) as recorder:
        recorded = step(model)
    assert [site.layer for site in recorder.recording.sites] == [0, 1]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(plain, recorded, strict=True))
    agrees(recorder.recording, own(model.eval()))


def test_several_training_steps_are_a_recording_each_of_the_weights_of_its_time() -> None:
    model = llama().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = own(model)
    with regard.Recorder(model) as recorder:
        for _ in range(2):
            step(model)
            optimizer.step()
    first, second = recorder.recordings
    agrees(first, before)
    assert float((first.weights(layer=1) - second.weights(layer=1)).abs().max()) > 1e-3
    assert not first.site(0).query.requires_grad


# Compiled


def test_a_compiled_model_of_transformers_is_recorded_as_written_and_says_so() -> None:
    model = bert()
    compiled = torch.compile(model, backend="eager")
    recording = regard.record(compiled, {"input_ids": IDS})
    assert any("compiled" in note for note in recording.provenance.notes)
    assert [site.layer for site in recording.sites] == [0, 1]
    agrees(recording, own(model))


# Pipelines


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sleeps", "on", "mat"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]", cls_token="[CLS]",
        sep_token="[SEP]",
    )  # fmt: skip


def test_a_pipeline_that_writes_is_one_recording(tokenizer: Any) -> None:
    model = llama()
    with families.quiet():
        write = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
        with regard.Recorder(model, tokenizer=tokenizer) as recorder:
            (written,) = write("the cat sleeps", max_new_tokens=5, do_sample=False, return_full_text=False)
    recording = recorder.recording
    assert recording.shape(0) == (4, 7, 7)
    assert recording.tokens().texts[:3] == ("the", "cat", "sleeps")
    assert recording.sequences["text"].written == (3,)
    assert "generated_text" in written
    agrees(recording, own(model, torch.tensor([recording.tokens().ids])))


def test_a_pipeline_that_fills_gaps_is_a_recording_for_each_text(tokenizer: Any) -> None:
    model = bert("ForMaskedLM")
    with families.quiet():
        fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
        with regard.Recorder(model, tokenizer=tokenizer) as recorder:
            fill(["the [MASK] sleeps", "the cat sleeps on [MASK]"], top_k=2)
    assert [one.tokens().texts for one in recorder.recordings] == [
        ("the", "[MASK]", "sleeps"),
        ("the", "cat", "sleeps", "on", "[MASK]"),
    ]


# Threads, as data-parallel wrappers use them


def test_copies_of_a_model_in_threads_do_not_mix() -> None:
    """What nn.DataParallel does: a copy of the model and a part of the batch for each thread."""
    model, results = bert(), {}
    copies = [bert() for _ in range(4)]
    parts = [IDS[:1, : 3 + i] for i in range(4)]
    outputs: dict[int, Tensor] = {}
    start = threading.Barrier(4)

    def work(i: int) -> None:
        start.wait()
        for _ in range(3):
            with regard.Recorder(copies[i]) as recorder, torch.no_grad():
                outputs[i] = copies[i](parts[i]).last_hidden_state
            results[i] = recorder.recording

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        with torch.no_grad():
            torch.testing.assert_close(outputs[i], model(parts[i]).last_hidden_state)
        agrees(results[i], own(model, parts[i]))


def test_a_recorder_of_any_thread_hears_all_of_them() -> None:
    model = bert()
    with regard.Recorder(model, any_thread=True) as recorder, torch.no_grad():
        for i in range(3):
            thread = threading.Thread(target=lambda ids: model(ids), args=(IDS[:1, : 4 + i],))
            thread.start()
            thread.join()
    assert [one.shape(0) for one in recorder.recordings] == [(4, 4, 4), (4, 5, 5), (4, 6, 6)]


# Errors and nesting


def test_what_was_recorded_before_an_error_in_the_block_is_not_passed_off_as_whole() -> None:
    model, before = bert(), F.scaled_dot_product_attention
    recorder = regard.Recorder(model)

    def run() -> None:
        with recorder:
            model(IDS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert F.scaled_dot_product_attention is before
    with pytest.raises(NothingToRecord, match="when the block ended well"):
        _ = recorder.recording


def test_an_inner_recorder_that_refuses_leaves_the_outer_one_whole() -> None:
    model = bert()
    with regard.Recorder(model) as outer, torch.no_grad():
        model(IDS)
        with pytest.raises(NothingToRecord), regard.Recorder(model.pooler):
            model(IDS[:, :5])
        model(IDS[:, :4])
    assert [one.shape(0) for one in outer.recordings] == [(4, 9, 9), (4, 5, 5), (4, 4, 4)]
