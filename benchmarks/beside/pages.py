"""How each package writes a run of a BERT-base shape into one page."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Write = Callable[[], object]
PROSE = ("README.md", "DESIGN.md")  # what is read, from the project's own folder


def bertviz(model: Any, ids: Tensor, tokenizer: Any, path: Path) -> Write:
    """Its head view, as a string that its documentation says to write into a file."""
    view = import_module("bertviz").head_view
    attentions, tokens = _eager(model, ids), tokenizer.convert_ids_to_tokens(ids[0])
    return lambda: path.write_text(view(attentions, tokens, html_action="return").data, encoding="utf-8")


def attnview(model: Any, ids: Tensor, tokenizer: Any, path: Path) -> Write:
    """Its atlas of all layers, given the weights under the names that it knows."""
    export = import_module("attnview").export_cache
    cache = {f"blocks.{i}.attn.hook_pattern": weights for i, weights in enumerate(_eager(model, ids))}
    tokens = tokenizer.convert_ids_to_tokens(ids[0])
    return lambda: export(cache, path, tokens=tokens)


def regard(model: Any, ids: Tensor, tokenizer: Any, path: Path) -> Write:
    """This project's page, from a recording from which nothing was computed ahead."""
    package = import_module("regard")
    recording = package.record(
        package.Subject(model, tokenizer, "bert-base", "random weights"), {"input_ids": ids}
    )
    return lambda: package.export(recording, path)


def subject(folder: str, tokens: int) -> tuple[Any, Tensor, Any]:
    """A BERT-base of random weights, so many tokens of this project's prose, and minilm's tokenizer."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    root = Path(__file__).parents[2]
    text = "\n".join((root / name).read_text(encoding="utf-8") for name in PROSE)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=tokens, return_tensors="pt")["input_ids"]
    torch.manual_seed(0)
    return BertModel(BertConfig()).eval(), ids, tokenizer


def written(page: str, folder: str, tokens: int, path: str) -> dict[str, float]:
    """Seconds of the processor from a finished run to the file, and its bytes."""
    write = PAGES[page](*subject(folder, tokens), Path(path))
    start = time.process_time()
    write()
    return {"seconds": time.process_time() - start, "bytes": float(Path(path).stat().st_size)}


def _eager(model: Any, ids: Tensor) -> Any:
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(ids, output_attentions=True).attentions


PAGES: dict[str, Callable[[Any, Tensor, Any, Path], Write]] = {
    page.__name__: page for page in (bertviz, attnview, regard)
}
