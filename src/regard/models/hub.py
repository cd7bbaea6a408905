"""Any model by its Hub name: from the Hub's own cache, else downloaded, or refused within five seconds."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

from regard.errors import MissingExtra, ModelError, SourceUnreachable, UnknownModel
from regard.models.catalogue import CATALOGUE
from regard.models.sources import TIMEOUT_S, Progress, answer_within, hub_endpoint, hub_is_off
from regard.words import say

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Weights as safetensors, and what a tokenizer or processor needs; never pickles, never code.
_WANTED = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja"]
_UNWANTED = ["onnx/*", "openvino/*", "*/*.safetensors", "flax*", "tf_*"]


def snapshot(name: str, progress: Progress | None = None) -> Path:
    """The folder of the Hub's model `name` in the Hub's own cache, downloaded when it is not there yet."""
    if not _NAME.fullmatch(name):
        raise UnknownModel(say("errors.unknown_model", name=name, known=", ".join(CATALOGUE)))
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtra(say("errors.missing_extra", package="huggingface_hub", extra="models")) from error
    if (here := _cached(huggingface_hub, name)) is not None:
        return here
    if hub_is_off():
        raise UnknownModel(
            say(
                "errors.unknown_model_offline",
                name=name,
                known=", ".join(CATALOGUE),
                reason=say("errors.hub_off"),
            )
        )
    _ask(name)
    try:
        folder = huggingface_hub.snapshot_download(
            name, allow_patterns=_WANTED, ignore_patterns=_UNWANTED, tqdm_class=_bar(name, progress)
        )
    except Exception as error:  # the Hub's client has many kinds of its own
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(say("errors.cannot_load", name=name, reason=reason)) from error
    return Path(folder)


def _cached(huggingface_hub: Any, name: str) -> Path | None:
    """The newest whole copy of `name` in the Hub's cache, if there is one."""
    try:
        folder = Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except Exception:  # not cached, whatever the client calls it
        return None
    whole = (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    return folder if whole else None


def _ask(name: str) -> None:
    """Raise unless the Hub knows `name` and says so in time."""
    url = f"{hub_endpoint()}/api/models/{name}"
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "regard"})
        with answer_within(TIMEOUT_S, lambda: urllib.request.urlopen(request, timeout=TIMEOUT_S)):
            return
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (
            401,
            403,
            404,
        ):  # the Hub says 401 for what does not exist; a token may still open it
            if error.code == 404 or not _has_token():
                known = ", ".join(CATALOGUE)
                raise UnknownModel(say("errors.unknown_model", name=name, known=known)) from error
            return
        reason = f"HTTP {error.code}"
    except urllib.error.URLError as error:
        reason = str(error.reason)
    except (OSError, HTTPException, ValueError) as error:  # ValueError: HF_ENDPOINT is no address
        reason = str(error) or type(error).__name__
    raise SourceUnreachable(say("errors.unreachable", name=name, reasons=f"Hub: {reason}"))


def _has_token() -> bool:
    import huggingface_hub

    return bool(huggingface_hub.get_token())


def _bar(name: str, progress: Progress | None) -> type[Any]:
    """A progress bar for the Hub's client that draws nothing and tells `progress`."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def display(self, *_: Any, **__: Any) -> bool:
            if progress is not None and self.unit == "B":
                progress(name, int(self.n), int(self.total or 0))
            return True

        def close(self) -> None:
            self.leave = False
            self.disable = True

    return Bar
