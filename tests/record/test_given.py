"""Texts, images, sound and tensors become what a model takes, and the axes say what stands there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import families
import regard
from regard import words
from regard.errors import InvalidArgument
from regard.record.patches import _tower, patches_of

SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
}  # fmt: skip
NAMED = {family.name: family for family in families.families()}
WORDS = ["<pad>", "</s>", "<unk>", "the", "cat", "sleeps", "le", "chat", "dort", "petit"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Whole words; each text ends with </s>."""
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def vit(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.ViTConfig(**{**SIZES, "image_size": 32, "patch_size": 8, **changes})
    return transformers.ViTModel(config).eval()


def whisper(head: str = "ForConditionalGeneration") -> Any:
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=61, d_model=32, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=16,
        max_source_positions=50, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=3,
    )  # fmt: skip
    return getattr(transformers, f"Whisper{head}")(config).eval()


def t5(head: str = "ForConditionalGeneration") -> Any:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=61, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=3, num_heads=4,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return getattr(transformers, f"T5{head}")(config).eval()


def bart() -> Any:
    torch.manual_seed(0)
    config = transformers.BartConfig(
        vocab_size=61, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, decoder_start_token_id=1,
        pad_token_id=0, eos_token_id=1, bos_token_id=2,
    )  # fmt: skip
    return transformers.BartModel(config).eval()


# Images


def test_an_image_may_lack_the_axis_of_the_batch() -> None:
    model, image = vit(), torch.randn(3, 32, 32)
    alone, batch = regard.record(model, image), regard.record(model, torch.stack([image, -image]))
    assert (alone.items, batch.items) == (1, 2)
    torch.testing.assert_close(alone.weights(layer=1), batch.weights(layer=1))


def test_the_tokens_of_an_image_are_its_patches_by_row_and_column() -> None:
    recording = regard.record(vit(image_size=[16, 32]), torch.randn(1, 3, 16, 32))
    tokens = recording.tokens()
    assert recording.sites[0].queries == recording.sites[0].keys == "image"
    assert tokens.texts == (
        "[CLS]", "r0 c0", "r0 c1", "r0 c2", "r0 c3", "r1 c0", "r1 c1", "r1 c2", "r1 c3",
    )  # fmt: skip
    assert tokens.special == (True, *(False,) * 8)
    words.set_language("fr")
    try:
        assert regard.record(vit(), torch.randn(3, 32, 32)).tokens().texts[6] == "l1 c1"
    finally:
        words.set_language("en")


PICTURED = """
    altclip aria aya_vision blip-2 bridgetower chinese_clip clip clipseg gemma3 git instructblip
    internvl kosmos-2 llava metaclip_2 ovis2 owlv2 owlvit paligemma siglip tipsv2 vipllava
    vision-text-dual-encoder beit data2vec-vision chinese_clip_vision_model clip_vision_model deit
    dinov2 dinov2_with_registers dinov3_vit dpt idefics3_vision ijepa internvl_vision mlcd_vision_model
    pixio qianfan_ocr_vision sapiens2 siglip_vision_model smolvlm_vision tipsv2_vision_model vit vit_msn
    yolos
"""


@pytest.mark.parametrize("name", [name for name in PICTURED.split() if name in NAMED])
def test_a_patch_is_where_its_pixels_are(name: str) -> None:
    """When the pixels of one patch change, of the first layer's queries only that of this patch does."""
    with families.quiet():
        model = families.build(NAMED[name])
        inputs = families.inputs_of(NAMED[name], model)
        before = regard.record(model, inputs)
        site = next(s for s in before.sites if s.queries.startswith("image") and s.layer == 0)
        texts = before.tokens(site=site).texts
        place = len(texts) - 2 - sum(text.startswith("[DET") for text in texts)
        row, column = (int(part[1:]) for part in texts[place].split())
        size = _tower(model, site.name)[1].patch_size
        high, wide = (size, size) if isinstance(size, int) else size
        pixels = inputs["pixel_values"].clone()
        pixels[:, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] += 1.0
        after = regard.record(model, {**inputs, "pixel_values": pixels})
    changed = (before.site(name=site.name, layer=0).query - after.site(name=site.name, layer=0).query).abs()
    assert changed.amax((0, 1, 3)).gt(1e-6).nonzero().flatten().tolist() == [place]


@pytest.mark.parametrize("name", ["swin", "segformer", "detr", "vit_mae", "pvt"])
def test_what_are_no_patches_of_the_picture_is_not_called_so(name: str) -> None:
    with families.quiet():
        model = families.build(NAMED[name])
        try:
            recording = regard.record(model, families.inputs_of(NAMED[name], model))
        except regard.errors.RecordingError:
            return
    assert not any(name.startswith("image") for name in recording.sequences)


def test_registers_and_distillation_have_names_and_shuffled_patches_none() -> None:
    config = transformers.Dinov2WithRegistersConfig(
        **SIZES, image_size=16, patch_size=8, num_register_tokens=2
    )
    model = transformers.Dinov2WithRegistersModel(config).eval()
    texts = regard.record(model, torch.randn(1, 3, 16, 16)).tokens().texts
    assert texts == ("[CLS]", "[REG 0]", "[REG 1]", "r0 c0", "r0 c1", "r1 c0", "r1 c1")
    masked = transformers.ViTMAEConfig(**SIZES, image_size=16, patch_size=8, mask_ratio=0.0)
    shuffles = transformers.ViTMAEModel(masked).eval()
    inputs = {"pixel_values": torch.randn(1, 3, 16, 16)}
    assert patches_of(shuffles, "layers.0", inputs, 1, 5) is None


@pytest.mark.parametrize("kind", ["pillow", "numpy", "several"])
def test_pictures_go_through_the_image_processor(kind: str) -> None:
    model, processor = vit(), ViTImageProcessorPil(size={"height": 32, "width": 32})
    pixels = np.random.default_rng(0).integers(0, 255, (40, 30, 3), dtype=np.uint8)
    picture = {"pillow": Image.fromarray(pixels), "numpy": pixels, "several": [pixels, pixels]}[kind]
    recording = regard.record(model, picture, tokenizer=processor)
    expected = processor(pixels, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(recording.weights(layer=1), regard.record(model, expected).weights(layer=1))
    assert recording.items == (2 if kind == "several" else 1)


def test_an_image_that_cannot_be_taken_is_refused_in_one_sentence() -> None:
    model = vit()
    with pytest.raises(InvalidArgument, match=r"ViTModel has no image processor.*pass one as tokenizer="):
        regard.record(model, np.zeros((32, 32, 3), dtype=np.uint8))
    with pytest.raises(InvalidArgument, match=r"tensor \(batch, 3, height, width\); got \(1, 32, 32, 3\)"):
        regard.record(model, torch.zeros(32, 32, 3))
    with pytest.raises(InvalidArgument, match=r"pixel_values must be floating-point numbers.*uint8"):
        regard.record(model, torch.zeros(3, 32, 32, dtype=torch.uint8))
    with pytest.raises(InvalidArgument, match="pair goes with text"):
        regard.record(model, torch.zeros(3, 32, 32), "and a text")


def test_text_and_image_go_together(tokenizer: Any) -> None:
    config = transformers.CLIPConfig(
        text_config={**SIZES, "vocab_size": 61, "eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0},
        vision_config={**SIZES, "image_size": 16, "patch_size": 8},
    )
    model = transformers.CLIPModel(config).eval()
    image_processor = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})

    class Both:
        """A processor as those of transformers: it holds the two."""

    both = Both()
    both.tokenizer, both.image_processor = tokenizer, image_processor  # type: ignore[attr-defined]
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8))
    recording = regard.record(model, {"text": "the cat sleeps", "image": image}, tokenizer=both)
    by_name = {site.queries: site for site in recording.sites}
    assert recording.tokens(site=by_name["text"]).texts == ("the", "cat", "sleeps", "</s>")
    assert recording.tokens(site=by_name["image"]).texts == ("[CLS]", "r0 c0", "r0 c1", "r1 c0", "r1 c1")
    pixels = image_processor(image, return_tensors="pt")["pixel_values"]
    ids = torch.tensor([tokenizer("the cat sleeps")["input_ids"]])
    again = regard.record(model, {"input_ids": ids, "pixel_values": pixels})
    for site in recording.sites:
        torch.testing.assert_close(recording.weights(site=site.name), again.weights(site=site.name))


# Sound


def test_whisper_takes_features_and_begins_with_its_first_token() -> None:
    model, features = whisper(), torch.randn(16, 100)
    recording = regard.record(model, features)
    found = {kind: [s.layer for s in recording.sites if s.kind == kind] for kind in recording.kinds}
    assert found == {"self": [0, 1], "causal": [0, 1, 2], "cross": [0, 1, 2]}
    assert recording.tokens(site=recording.site(0, "causal")).ids == (3,)
    assert recording.shape(0, "cross") == (4, 1, 50)
    assert "token that it begins with (3)" in " ".join(recording.provenance.notes)
    assert len(recording.sites) == len({site.name for site in recording.sites}) == 8


def test_whisper_writes_what_it_hears() -> None:
    model, features = whisper(), torch.randn(1, 16, 100)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6.0 if parameter.ndim > 1 else 1.0)
    with families.quiet():
        recording = regard.record(model, features, generate=4)
        returned = model.generate(features, max_new_tokens=4, do_sample=False)
    read = (3, *returned[0, :3].tolist())
    assert recording.tokens(site=recording.site(0, "causal")).ids == read
    again = regard.record(model, {"input_features": features, "decoder_input_ids": torch.tensor([read])})
    for kind in ("causal", "cross", "self"):
        torch.testing.assert_close(
            recording.weights(layer=1, kind=kind), again.weights(layer=1, kind=kind), rtol=0, atol=1e-5
        )


def test_a_waveform_goes_through_the_feature_extractor() -> None:
    model = whisper("Model")
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    wave = np.sin(np.arange(8000) / 20).astype(np.float32)
    recording = regard.record(model, wave, tokenizer=extractor)
    features = extractor(wave, sampling_rate=16000, return_tensors="pt")["input_features"]
    torch.testing.assert_close(
        recording.weights(layer=1, kind="self"), regard.record(model, features).weights(layer=1, kind="self")
    )
    assert "16,000 samples a second" in " ".join(recording.provenance.notes)
    with pytest.raises(InvalidArgument, match="WhisperModel has no feature extractor, so sound must be"):
        regard.record(model, wave)


def test_models_of_raw_waves_take_them_as_they_are() -> None:
    config = transformers.Wav2Vec2Config(
        **SIZES, conv_dim=[8, 8], conv_stride=[5, 2], conv_kernel=[10, 3], num_feat_extract_layers=2,
        vocab_size=20, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    model = transformers.Wav2Vec2Model(config).eval()
    wave = torch.randn(400)
    alone, batch = regard.record(model, wave), regard.record(model, wave[None])
    torch.testing.assert_close(alone.weights(layer=1), batch.weights(layer=1))
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    two = regard.record(model, [wave, wave[:300]], tokenizer=extractor)
    assert two.items == 2
    torch.testing.assert_close(two.weights(layer=1), alone.weights(layer=1))


# Targets


@pytest.mark.parametrize("make", [t5, lambda: t5("Model"), bart])
def test_the_decoder_reads_the_target_shifted_right(make: Any, tokenizer: Any) -> None:
    model = make()
    recording = regard.record(model, "the cat sleeps", target="le chat dort", tokenizer=tokenizer)
    own, crossing = recording.site(0, "causal"), recording.site(0, "cross")
    start = model.config.decoder_start_token_id
    assert recording.tokens(site=own).ids == (start, 6, 7, 8)
    assert recording.tokens(site=own).texts[1:] == ("le", "chat", "dort")
    assert recording.tokens(side="key", site=crossing).texts == ("the", "cat", "sleeps", "</s>")
    ids = torch.tensor([[3, 4, 5, 1]])
    again = regard.record(model, {"input_ids": ids, "decoder_input_ids": torch.tensor([[start, 6, 7, 8]])})
    for kind in ("causal", "cross", "self"):
        torch.testing.assert_close(recording.weights(layer=1, kind=kind), again.weights(layer=1, kind=kind))


@pytest.mark.parametrize("make", [t5, lambda: t5("Model"), bart])
def test_targets_of_a_batch_have_each_its_own_length(make: Any, tokenizer: Any) -> None:
    model, texts, targets = make(), ["the cat", "cat sleeps the"], ["le petit chat dort", "le chat"]
    batch = regard.record(model, texts, target=targets, tokenizer=tokenizer)
    for item in (0, 1):
        alone = regard.record(model, texts[item], target=targets[item], tokenizer=tokenizer)
        for kind in ("causal", "cross", "self"):
            torch.testing.assert_close(
                batch.weights(layer=1, kind=kind, item=item), alone.weights(layer=1, kind=kind),
                rtol=0, atol=1e-5,
            )  # fmt: skip


def test_without_a_target_t5_begins_with_its_first_token(tokenizer: Any) -> None:
    recording = regard.record(t5(), "the cat", tokenizer=tokenizer)
    assert recording.tokens(site=recording.site(0, "causal")).ids == (0,)
    assert "Give target=" in " ".join(recording.provenance.notes)


def test_a_target_that_cannot_be_read_is_refused(tokenizer: Any, tiny_bert: Any) -> None:
    with pytest.raises(InvalidArgument, match="target is for an encoder with a decoder; BertModel is none"):
        regard.record(tiny_bert, "the cat", target="le chat", tokenizer=tokenizer)
    with pytest.raises(InvalidArgument, match="target must be a text for each item, 1 in all"):
        regard.record(t5(), "the cat", target=["le", "chat"], tokenizer=tokenizer)
    with pytest.raises(InvalidArgument, match="with generate it writes that itself"):
        regard.record(t5(), "the cat", target="le chat", generate=3, tokenizer=tokenizer)
    with pytest.raises(InvalidArgument, match="has no tokenizer for the target"):
        regard.record(t5(), {"input_ids": torch.tensor([[3, 4]])}, target="le chat")
    with pytest.raises(InvalidArgument, match="The text is empty"):
        regard.record(t5(), "the cat", target=" ", tokenizer=tokenizer)
    unsaid = t5()
    del unsaid.config.decoder_start_token_id
    unsaid.generation_config.decoder_start_token_id = None
    with pytest.raises(InvalidArgument, match="not say what its decoder begins with; set"):
        regard.record(unsaid, "the cat", target="le chat", tokenizer=tokenizer)


# Modules of one's own


def test_a_module_of_ones_own_is_recorded_by_one_call() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.attention(x, x, x)[0]
            return output

    mine, x = Mine().eval(), torch.randn(2, 5, 16)
    recording = regard.record(mine, x)
    expected = mine.attention(x, x, x, average_attn_weights=False)[1]
    torch.testing.assert_close(recording.weights(layer=0, item=1), expected[1])
    torch.testing.assert_close(regard.record(mine, x.numpy()).weights(layer=0, item=1), expected[1])
    with pytest.raises(InvalidArgument, match="Mine has no tokenizer, so its input must be a tensor"):
        regard.record(mine, "text")
