"""What a recorder watches in its own model beside the attentions: where calls begin and end, and generation.

All of it hangs on this one model: hooks, an attribute `generate` that covers its method, and on the caches
that it is given an attribute `reorder_cache`. Nothing of a class is touched, and all of it is taken away
again.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class RunListener(Protocol):
    """Who wants to hear of the calls of a model."""

    def watches(self, module: nn.Module) -> bool:
        """Whether calls of this module, from this thread, are wanted."""
        ...

    def begin_run(self, given: dict[str, Any]) -> None:
        """A call of the model begins; its arguments by name."""
        ...

    def end_run(self, output: Any) -> None:
        """It ended, with `output`, or with an error and None."""
        ...

    def begin_generation(self, given: dict[str, Tensor], most: int) -> None:
        """`generate` begins, with these tensors; it may write `most` tokens, 0 where that is not known."""
        ...

    def end_generation(self, returned: Any, ends: tuple[int, ...]) -> None:
        """It ended, with what it returned; `ends` are the tokens that end a sequence."""
        ...


def watch(model: nn.Module, listener: RunListener, stack: ExitStack, *, compiled: bool) -> None:
    """Tell `listener` of the calls of `model` until `stack` is closed.

    A compiled model runs as it is written: what was compiled calls no function that could be watched.
    """

    def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if listener.watches(module):
            given = dict(kwargs)
            if args:
                given |= zip(inspect.signature(module.forward).parameters, args, strict=False)
            listener.begin_run(given)

    def end(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if listener.watches(module):
            listener.end_run(output)

    stack.callback(model.register_forward_pre_hook(begin, with_kwargs=True).remove)
    stack.callback(model.register_forward_hook(end, always_call=True).remove)
    if callable(getattr(model, "generate", None)):
        stack.enter_context(
            covered(model, "generate", lambda original: _generating(model, original, listener))
        )
    if compiled:
        stack.enter_context(torch.compiler.set_stance("force_eager"))


@contextmanager
def covered(owner: object, name: str, cover: Callable[[Callable[..., Any]], Any]) -> Iterator[None]:
    """For the time of the block, `owner.name` is what `cover` makes of it; the class is not touched."""
    own = vars(owner)
    had = name in own
    original = getattr(owner, name)
    own[name] = cover(original)
    try:
        yield
    finally:
        if had:
            own[name] = original
        else:
            own.pop(name, None)


def reordering(cache: Any, tell: Callable[[Tensor], None], stack: ExitStack) -> None:
    """Tell of every exchange of rows in `cache` until `stack` is closed; the cache is not kept alive."""
    if not hasattr(cache, "reorder_cache") or "reorder_cache" in vars(cache):
        return
    alive = weakref.ref(cache)
    method = type(cache).reorder_cache

    def reorder_cache(order: Tensor, *args: Any, **kwargs: Any) -> Any:
        tell(order.detach().cpu())
        return method(alive(), order, *args, **kwargs)

    vars(cache)["reorder_cache"] = reorder_cache

    def restore() -> None:
        if (still := alive()) is not None:
            vars(still).pop("reorder_cache", None)

    stack.callback(restore)


def _generating(model: nn.Module, original: Callable[..., Any], listener: RunListener) -> Callable[..., Any]:
    def generate(*args: Any, **kwargs: Any) -> Any:
        if not listener.watches(model):
            return original(*args, **kwargs)
        given = {**dict(zip(("inputs",), args, strict=False)), **kwargs}
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        if "inputs" in tensors:
            tensors = {_main_input(model): tensors.pop("inputs"), **tensors}
        listener.begin_generation(tensors, _most(model, given))
        returned = None
        try:
            returned = original(*args, **kwargs)
        finally:
            listener.end_generation(returned, _ends(model, given))
        return returned

    return generate


def _main_input(model: nn.Module) -> str:
    return str(getattr(model, "main_input_name", "input_ids"))


def _most(model: nn.Module, given: dict[str, Any]) -> int:
    """How many tokens may be written, by the call or its configuration; 0 where it says otherwise."""
    configured = given.get("generation_config") or getattr(model, "generation_config", None)
    most = given.get("max_new_tokens", getattr(configured, "max_new_tokens", None))
    return most if isinstance(most, int) else 0


def _ends(model: nn.Module, given: dict[str, Any]) -> tuple[int, ...]:
    """The tokens that end a sequence, by the call, its configuration or the model's."""
    configured = given.get("generation_config") or getattr(model, "generation_config", None)
    stated = given.get("eos_token_id", getattr(configured, "eos_token_id", None))
    if stated is None:
        return ()
    return tuple(int(i) for i in stated) if isinstance(stated, list | tuple | Tensor) else (int(stated),)
