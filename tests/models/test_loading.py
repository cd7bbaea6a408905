"""`regard.load`: catalogue, folder or Hub name; safetensors only; silent; failures are one clear sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import regard
from regard.errors import InvalidArgument, ModelError, SourceUnreachable, UnknownModel
from regard.models import hub as hub_module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT as a person saves one, without a tokenizer."""
    from transformers import BertConfig, BertForMaskedLM

    path = tmp_path_factory.mktemp("models") / "my-bert"
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForMaskedLM(config).save_pretrained(path)
    return path


def test_minilm_is_what_the_catalogue_says(minilm: Any) -> None:
    assert (minilm.name, minilm.licence) == ("minilm", "Apache-2.0")
    assert minilm.source == "sentence-transformers/all-MiniLM-L6-v2"
    assert not minilm.model.training
    assert (minilm.model.config.num_hidden_layers, minilm.model.config.num_attention_heads) == (6, 12)


def test_a_folder_is_loaded_with_the_class_that_it_was_saved_from(folder: Path) -> None:
    subject = regard.load(folder)
    assert subject.name == "my-bert"
    assert subject.source == str(folder)
    assert type(subject.model).__name__ == "BertForMaskedLM"
    assert subject.tokenizer is None
    assert regard.load(str(folder), dtype=torch.bfloat16).model.dtype == torch.bfloat16


def test_a_model_of_images_comes_with_what_makes_tensors_of_them(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16,
        patch_size=8,
    )  # fmt: skip
    ViTModel(config).save_pretrained(tmp_path)
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    subject = regard.load(tmp_path)
    assert subject.tokenizer is None
    picture = numpy.zeros((20, 30, 3), dtype=numpy.uint8)
    texts = regard.record(subject, picture).tokens().texts
    assert texts == ("[CLS]", "r0 c0", "r0 c1", "r1 c0", "r1 c1")


@pytest.mark.parametrize("device", ["gpu", "cuda:999"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(device: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"cannot run on {device} here \(.+\)\. Leave out device="):
        regard.load("no-such-model", device=device)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UnknownModel, match=r"config\.json is missing"):
        regard.load(tmp_path)
    shutil.copy(folder / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle is never read")
    with pytest.raises(UnknownModel, match="holds no safetensors file"):
        regard.load(tmp_path)


def test_damaged_files_of_a_folder_give_one_sentence(tmp_path: Path, folder: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    weights = tmp_path / "copy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match="The model copy cannot be loaded: ") as refused:
        regard.load(tmp_path / "copy")
    assert "\n" not in str(refused.value)
    (tmp_path / "copy" / "config.json").write_text("{ no json")
    with pytest.raises(ModelError, match="The model copy cannot be loaded: "):
        regard.load(tmp_path / "copy")


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path, folder: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "evil.py").write_text("import pathlib; pathlib.Path('ran').touch(); class Evil: pass")
    config = json.loads((copy / "config.json").read_text())
    config |= {"auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"}, "architectures": ["Evil"]}
    (copy / "config.json").write_text(json.dumps(config))
    assert type(regard.load(copy).model).__name__ == "BertModel"
    config["model_type"] = "evil"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        regard.load(copy)
    assert not Path("ran").exists()


def test_an_unknown_name_is_refused_with_what_is_known(
    hub: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnknownModel, match=r"no model nowhere/nothing: neither in the catalogue \(minilm"):
        regard.load("nowhere/nothing")
    assert hub.asked == ["/api/models/nowhere/nothing"]
    for name in ("", "a b", "../up", "a/b/c", "name\n"):
        with pytest.raises(UnknownModel, match="There is no model"):
            regard.load(name)


def test_without_the_hub_an_unknown_name_says_that_the_hub_was_not_asked(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UnknownModel, match=r"The Hub was not asked: switched off by HF_HUB_OFFLINE"):
        regard.load("nowhere/nothing")
    assert not hub.asked


def test_a_hub_that_fails_or_never_answers_is_left_and_named(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.answers["/api/models/some/model"] = 503
    with pytest.raises(SourceUnreachable, match=r"could not be fetched from any source\. Hub: HTTP 503"):
        regard.load("some/model")
    monkeypatch.setattr(hub_module, "TIMEOUT_S", 0.2)
    hub.answers["/api/models/some/model"] = None
    with pytest.raises(SourceUnreachable, match=r"Hub: (no answer within 0.2 seconds|timed out)"):
        regard.load("some/model")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceUnreachable, match=r"Hub: \[Errno"):
        regard.load("some/model")


def test_loading_and_recording_print_nothing() -> None:
    program = "import regard; s = regard.load('minilm'); regard.record(s, 'Quiet, please. ' * 90)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_transformers_speaks_again_after_loading(folder: Path) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    regard.load(folder)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_importing_the_loader_does_not_import_transformers() -> None:
    program = (
        "import sys, regard.models.loading, regard.record.recording; "
        "sys.exit('transformers' in sys.modules or 'huggingface_hub' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
