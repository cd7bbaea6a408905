"""The first door: Hugging Face's attention interface, through which most of its models call their attention.

While a recorder lives, what `AttentionInterface` hands out is the function that the model's own
implementation name maps to ("eager" too: the modelling file's own), wrapped. So masks, name-dependent
branches and the kernel stay what they were. The wrapper passes straight through unless the calling
module belongs to a model that a living recorder watches. One installation serves all recorders; the
last one to leave takes it away.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

Function = Callable[..., Any]

_ARGUMENTS = ("module", "query", "key", "value", "attention_mask")


class Listener(Protocol):
    """Who wants to hear of attention calls."""

    def watches(self, module: nn.Module) -> bool:
        """Whether calls of this module, from this thread, are wanted."""
        ...

    def hear(self, kernel: str, arguments: dict[str, Any], output: Tensor) -> None:
        """Take note of a call: its arguments by name, and what it returned."""
        ...


_lock = threading.Lock()
_local = threading.local()
_listeners: tuple[Listener, ...] = ()  # replaced, never changed, so that it is read without the lock
_originals: dict[str, Any] = {}
_wrapped: dict[tuple[Function, str], Function] = {}  # so that a call finds the wrapper that is there already


def listen(listener: Listener) -> None:
    """Let `listener` hear of calls from now on."""
    global _listeners
    with _lock:
        if not _listeners:
            _install()
        _listeners = (*_listeners, listener)


def leave(listener: Listener) -> None:
    """Let `listener` hear of nothing more; the last one restores what was there before."""
    global _listeners
    with _lock:
        _listeners = tuple(other for other in _listeners if other is not listener)
        if not _listeners:
            _restore()


def is_calling() -> bool:
    """Whether this thread is inside a call that is being heard: what it calls in turn is how it computes."""
    return bool(getattr(_local, "calling", False))


def _install() -> None:
    if "transformers" not in sys.modules:  # so no module of a model can be from there
        return
    from transformers.modeling_utils import AttentionInterface

    get_interface = getattr(AttentionInterface, "get_interface", None)
    get_item = AttentionInterface.__getitem__

    def watched_item(self: Any, name: str) -> Function:
        return _watched(get_item(self, name), name)

    if get_interface is not None:

        def watched_interface(self: Any, attn_implementation: str, default: Function) -> Function:
            return _watched(get_interface(self, attn_implementation, default), attn_implementation or "eager")

        _replace(AttentionInterface, "get_interface", watched_interface)
    _replace(AttentionInterface, "__getitem__", watched_item)


def _replace(owner: type, name: str, value: Any) -> None:
    _originals[name] = owner.__dict__.get(name)  # None: inherited, so that removing ours restores it
    setattr(owner, name, value)


def _restore() -> None:
    if not _originals:
        return
    from transformers.modeling_utils import AttentionInterface

    for name, original in _originals.items():
        if original is None:
            delattr(AttentionInterface, name)
        else:
            setattr(AttentionInterface, name, original)
    _originals.clear()
    _wrapped.clear()


def _watched(function: Function, kernel: str) -> Function:
    """`function`, telling the listeners about every call of a module that they watch."""
    known = _wrapped.get((function, kernel))
    if known is None:
        known = function if hasattr(function, "regard_watches") else _wrapper_of(function, kernel)
        _wrapped[function, kernel] = known
    return known


def _wrapper_of(function: Function, kernel: str) -> Function:

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        module = args[0] if args else kwargs.get("module")
        hearing = [listener for listener in _listeners if listener.watches(module)]  # type: ignore[arg-type]
        if not hearing:
            return function(*args, **kwargs)
        _local.calling = True
        try:
            result = function(*args, **kwargs)
        finally:
            _local.calling = False
        if hearing:
            arguments = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
            for listener in hearing:
                listener.hear(kernel, arguments, result[0])
        return result

    watched.regard_watches = True  # type: ignore[attr-defined]
    return watched
