"""What was never finished: told again as it was, or refused; never invented, whoever made the file."""

from __future__ import annotations

import copy
import json
import random
import shutil
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.errors import DamagedFile, RegardError
from regard.record import appended
from regard.record.recorder import Recorder
from sizes import DECODER

IDS = torch.randint(2, 61, (2, 24), generator=torch.Generator().manual_seed(0))


class Stopped(Exception):
    """What ends the blocks here."""


def llama() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER)).eval()


def gemma2() -> Any:
    """Windows of 8 and whole attentions in turn."""
    torch.manual_seed(0)
    kinds = ["sliding_attention", "full_attention"] * 2
    more = {"head_dim": 8, "sliding_window": 8, "layer_types": kinds, "query_pre_attn_scalar": 8}
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**DECODER, **more)).eval()


def albert(groups: int = 1) -> Any:
    """Six layers in groups, each a module that is called several times."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "embedding_size": 16, "intermediate_size": 32, "num_attention_heads": 4}
    config = transformers.AlbertConfig(
        vocab_size=61, num_hidden_layers=6, num_hidden_groups=groups, initializer_range=0.3, **sizes
    )
    return transformers.AlbertModel(config).eval()


def t5() -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=61, decoder_start_token_id=0, eos_token_id=None, **sizes)
    return transformers.T5ForConditionalGeneration(config).eval()


def _then_stop(run: Any, *given: Any) -> None:
    run(*given)
    raise Stopped


def left_behind(model: Any, path: Path, generate: Any = None, **choice: Any) -> Any:
    """The recording in the file that a block leaves that raised at its end, when all was complete."""

    def run(ids: torch.Tensor) -> Any:
        return model(ids) if generate is None else model.generate(ids, do_sample=False, **generate)

    with pytest.raises(Stopped), torch.no_grad(), Recorder(model, path=path, **choice):
        _then_stop(run, IDS)
    return regard.open(f"{path}.partial")


def assert_same(one: Any, other: Any) -> None:
    def told(recording: Any) -> list[Any]:
        return [(s.name, s.layer, s.kind, s.head_numbers, s.all_heads) for s in recording.sites]

    assert told(one) == told(other)
    for site in one.sites:
        for item in range(one.items):
            where = {"site": site.name, "layer": site.layer, "item": item}
            assert torch.equal(one.weights(**where), other.weights(**where))


@pytest.mark.parametrize("generate", [{"max_new_tokens": 4}, {"max_new_tokens": 4, "use_cache": False}])
def test_each_layer_of_a_generation_keeps_its_own_window(generate: dict[str, Any], tmp_path: Path) -> None:
    model = gemma2()
    whole = regard.record(model, IDS, generate={"do_sample": False, **generate})
    in_window, everywhere = (whole.weights(layer=layer)[:, 20, :8].sum() for layer in (0, 1))
    assert in_window == 0 < everywhere
    if "use_cache" in generate:  # its last step reads everything
        assert left_behind(model, tmp_path / "a.regard", generate).layers == whole.layers
    else:
        assert_same(left_behind(model, tmp_path / "a.regard", generate), whole)


@pytest.mark.parametrize(
    ("make", "choice"),
    [
        (albert, {"layers": [4]}),
        (albert, {"layers": [1, 5], "heads": [2]}),
        (llama, {"layers": [1, 3], "heads": [0, 3]}),
        (llama, {"kinds": ["causal"]}),
    ],
)
def test_what_was_chosen_is_what_can_be_opened_and_layers_keep_their_numbers(
    make: Any, choice: dict[str, Any], tmp_path: Path
) -> None:
    model = make()
    assert_same(left_behind(model, tmp_path / "a.regard", **choice), regard.record(model, IDS, **choice))


@pytest.mark.parametrize("kinds", [["cross"], ["causal"], ["self"]])
def test_steps_are_counted_by_the_attentions_that_were_left_out_as_well(
    kinds: list[str], tmp_path: Path
) -> None:
    model, generate = t5(), {"max_new_tokens": 5}
    whole = regard.record(model, IDS, generate={"do_sample": False, **generate}, kinds=kinds)
    assert_same(left_behind(model, tmp_path / "a.regard", generate, kinds=kinds), whole)


def test_layers_that_cannot_be_counted_any_more_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match="layers of its attentions cannot be told"):
        left_behind(albert(groups=2), tmp_path / "a.regard", layers=[1, 5], heads=[2])


def test_a_layer_without_any_of_the_wanted_heads_is_no_damage(tmp_path: Path) -> None:
    sizes = {"hidden_sizes": [16, 32], "num_attention_heads": [1, 2], "num_encoder_blocks": 2}
    more = {
        "depths": [1, 1],
        "sr_ratios": [2, 1],
        "patch_sizes": [3, 3],
        "strides": [2, 2],
        "mlp_ratios": [1, 1],
    }
    torch.manual_seed(0)
    model = transformers.SegformerModel(transformers.SegformerConfig(**sizes, **more)).eval()
    pixels = torch.randn(1, 3, 16, 16)
    with pytest.raises(Stopped), torch.no_grad(), Recorder(model, path=tmp_path / "a.regard", heads=[1]):
        _then_stop(model, pixels)
    rest = regard.open(tmp_path / "a.regard.partial")
    assert_same(rest, regard.record(model, pixels, heads=[1]))


def test_an_unfinished_file_of_which_nothing_was_wanted_says_that_nothing_is_complete(tmp_path: Path) -> None:
    model = albert()
    calls = []

    def stop(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Stopped

    handle = model.encoder.albert_layer_groups[0].register_forward_pre_hook(stop)
    with pytest.raises(Stopped):
        regard.record(model, IDS, layers=[5], path=tmp_path / "a.regard")
    handle.remove()
    with pytest.raises(DamagedFile, match="nothing in it is complete"):
        regard.open(tmp_path / "a.regard.partial")


def test_a_record_whose_numbers_were_not_all_written_is_none_though_the_file_is_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two writes: the file was made longer ahead of them, and would read as zeros."""
    model, path = llama(), tmp_path / "a.regard"
    whole = regard.record(model, IDS)
    written, seen = appended._written, [0]
    stops: list[int] = []

    def counted(handle: int, data: memoryview, at: int) -> int:
        seen[0] += 1
        if stops and seen[0] == stops[0]:
            shutil.copyfile(f"{path}.partial", tmp_path / "killed.partial")
            raise Stopped
        return written(handle, data, at)

    monkeypatch.setattr(appended, "_written", counted)
    regard.record(model, IDS, path=path)
    total, counts = seen[0], set()
    for stop in range(4, total, 2):
        seen[0], stops[:] = 0, [stop]
        with pytest.raises(Stopped):
            regard.record(model, IDS, path=path)
        try:
            rest = regard.open(tmp_path / "killed.partial")
        except DamagedFile:
            continue
        counts.add(len(rest.sites))
        for site in rest.sites:
            assert torch.equal(site.query, whole.site(site.layer).query)
            assert torch.equal(site.key, whole.site(site.layer).key)
    assert counts == {1, 2, 3}


def test_an_opened_file_stays_what_it_was_while_the_same_path_is_written_again(tmp_path: Path) -> None:
    model, path = llama(), tmp_path / "a.regard"
    whole = regard.record(model, IDS)
    unfinished = left_behind(model, path)
    again = left_behind(model, path)
    finished = regard.record(model, IDS, path=path)
    regard.record(model, IDS.flip(1), path=path)
    for recording in (unfinished, again, finished):
        assert_same(recording, whole)


def _records(whole: bytes) -> tuple[bytes, list[tuple[dict[str, Any], bytes]]]:
    at = 8 + int.from_bytes(whole[:8], "little")
    front, found = whole[:at], []
    while whole[at : at + 4] == b"RGRD":
        _, text, _, data = struct.unpack_from("<4sIIQ4x", whole, at)
        start = at + 24 + text
        found.append((json.loads(whole[at + 24 : start]), whole[start : start + data]))
        at = start + data
    return front, found


def _file(front: bytes, records: list[tuple[dict[str, Any], bytes]]) -> bytes:
    whole = front
    for event, data in records:
        text = json.dumps(event).encode()
        text += b" " * (-(24 + len(text)) % 64)
        whole += struct.pack("<4sIIQ4x", b"RGRD", len(text), zlib.crc32(text), len(data)) + text + data
    return whole


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place] * bool(place) + [p for key, one in inner for p in _places(one, (*place, key))]


HOSTILE: list[Any] = [
    -1,
    0,
    1 << 31,
    1 << 40,
    1 << 63,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    None,
    "",
    "F32",
    "x",
]
HOSTILE += [[], {}, True, [-1], [1, 1 << 40], 0.5, "../../etc/passwd"]


@pytest.mark.parametrize("generate", [None, {"max_new_tokens": 3}])
def test_a_file_made_by_hand_is_refused_or_can_be_used(generate: Any, tmp_path: Path) -> None:
    left_behind(llama(), tmp_path / "a.regard", generate, layers=[1, 2])
    front, records = _records((tmp_path / "a.regard.partial").read_bytes())
    chance, opened = random.Random(0), 0
    for _ in range(200):
        changed = copy.deepcopy(records)
        event = chance.choice(changed)[0]
        place = chance.choice(_places(event))
        at: Any = event
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = copy.deepcopy(chance.choice(HOSTILE))
        (tmp_path / "made.partial").write_bytes(_file(front, changed))
        with suppress(DamagedFile):
            recording = regard.open(tmp_path / "made.partial")
            opened += 1
            with suppress(RegardError):
                for site in recording.sites:
                    assert bool(recording.weights(site=site.name, layer=site.layer).isfinite().all())
                recording.save(tmp_path / "saved.regard")
    assert 20 < opened < 180


@pytest.mark.parametrize("shape", [[-1], [1, 4, 1 << 62, 8], [1, 4, -24, 8], [2, 4, 25, 8], "24", [2.0]])
def test_tensors_that_do_not_lie_in_their_record_are_refused(shape: Any, tmp_path: Path) -> None:
    left_behind(llama(), tmp_path / "a.regard")
    front, records = _records((tmp_path / "a.regard.partial").read_bytes())
    event = next(event for event, _ in reversed(records) if event["event"] == "call")
    event["tensors"]["key"][1] = shape
    (tmp_path / "made.partial").write_bytes(_file(front, records))
    with pytest.raises(DamagedFile):
        regard.open(tmp_path / "made.partial")


def test_a_step_at_a_position_far_beyond_its_file_takes_no_memory(tmp_path: Path) -> None:
    left_behind(llama(), tmp_path / "a.regard", {"max_new_tokens": 3})
    front, records = _records((tmp_path / "a.regard.partial").read_bytes())
    for event, _ in records:
        if event["event"] == "call" and event["position"]["query"]:
            event["position"]["query"] += 1 << 40
        if event["event"] == "step" and event["past"]:
            event["past"] += 1 << 40
    (tmp_path / "made.partial").write_bytes(_file(front, records))
    with pytest.raises(DamagedFile):
        regard.open(tmp_path / "made.partial")
