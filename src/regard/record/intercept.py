"""The second door: `torch.nn.functional.scaled_dot_product_attention`, intercepted for the time of the run.

Through it go `torch.nn.MultiheadAttention`, `torch.nn.Transformer` and its parts, timm, `regard.nn` and most
models of one's own. While a recorder lives, every name that is bound to the function is bound to a wrapper:
in torch.nn.functional, in modules that imported it by name, in attributes of the model's own modules. The
wrapper calls the original and tells the recorders that watch the innermost module that is running, which it
finds on the stack of calls: so no module carries a hook, other models pass straight through, and threads
cannot mix.

Two ways around the function are closed as well. Where `MultiheadAttention` is asked for weights it multiplies
matrices itself: its call is answered by the original, and repeated without weights to see queries and keys.
Its fast path is one fused kernel: it is switched off, and the recording says so.

Not to be had: a reference to the function kept in a closure, a list or a partial; kernels called directly.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attend import attention as ours  # before any block: what it tries out is no model's
from regard.record import interface
from regard.record.call import Call, NotUnderstood
from regard.record.listener import CallListener
from regard.record.structure import Structure
from regard.words import say

Function = Callable[..., Any]

_MODULE_CALL: CodeType = nn.Module._call_impl.__code__
_NAMES = ("scaled_dot_product_attention", "multi_head_attention_forward", "attention")
_USUAL = frozenset(vars(nn.Module()))  # attributes that every module has
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)

_lock = threading.RLock()
_listeners: tuple[CallListener, ...] = ()  # replaced, never changed, so that it is read without the lock
_bound: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}  # where a wrapper stands, and what stood there
_wrappers: dict[int, Function] = {}  # id of an original -> its wrapper
_seen: dict[int, Any] = {}  # Python modules that have been looked through
_last_look: tuple[int, str] | None = None  # how many modules there were, and the newest
_places: list[tuple[dict[str, Any], str]] = []  # where in them the functions' names were found
_plain: set[tuple[type, int]] = set()  # torch's own small modules, by class and number of attributes
_fast_path_before: bool | None = None
_local = threading.local()


def listen(listener: CallListener, structure: Structure) -> None:
    """Let `listener` hear of the calls of its model, which is made so, from now on."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)
        _bind_everywhere(structure)
        _switch_off_fast_path(structure)


def leave(listener: CallListener) -> None:
    """Let `listener` hear of nothing more; the last one restores what was there before."""
    global _listeners, _fast_path_before
    with _lock:
        _listeners = tuple(other for other in _listeners if other is not listener)
        if _listeners:
            return
        for (_, name), (place, original) in _bound.items():
            place[name] = original
        _bound.clear()
        _wrappers.clear()
        if _fast_path_before is not None:
            torch.backends.mha.set_fastpath_enabled(_fast_path_before)
            _fast_path_before = None


def has_fast_path(structure: Structure) -> bool:
    """Whether some module would call a kernel that does the projections as well."""
    return structure.has(*_FUSED)


def _bind_everywhere(structure: Structure) -> None:
    """Bind wrappers in Python modules by the functions' names, and around a model's by whatever name."""
    if not _wrappers:
        _wrap(F.scaled_dot_product_attention, _watched_sdpa)
        _wrap(F.multi_head_attention_forward, _watched_multi_head)
        _wrap(ours.attention, _watched_regard)
    for python_module in _unseen_python_modules():
        place = getattr(python_module, "__dict__", None)
        if isinstance(place, dict):
            _places.extend((place, name) for name in _NAMES if id(place.get(name)) in _wrappers)
    for place, name in _places:
        _bind(place, name)
    defining = {kind.__module__ for kind in structure.types if not _is_torchs_own(kind)}
    for name in defining | {"__main__", "regard"}:
        _bind_in(vars(sys.modules.get(name, sys)))
    _bind_in_modules(structure.modules)


def _bind_in_modules(modules: list[nn.Module]) -> None:
    """Bind wrappers to whatever attributes of these modules hold the functions."""
    looks = [(module, (type(module), len(vars(module)))) for module in modules]
    fresh = [(module, look) for module, look in looks if look not in _plain]
    # To look at a value brings it into the processor's cache, to look at a name mostly does not.
    held = (id(at[name]) for at in (vars(module) for module, _ in fresh) for name in at if name not in _USUAL)
    if not _wrappers.keys().isdisjoint(held):
        for module, _ in fresh:
            _bind_in(vars(module))
    elif len(_listeners) == 1:  # else functions may be bound already
        _plain.update(look for module, look in fresh if not module._modules and _is_torchs_own(look[0]))


def _unseen_python_modules() -> list[Any]:
    """What was imported since the last look: thousands of modules need one look, not one a recording."""
    global _last_look
    now = (len(sys.modules), next(reversed(sys.modules)))
    if _seen and now == _last_look:
        return []
    _last_look = now
    fresh = [module for module in list(sys.modules.values()) if id(module) not in _seen]
    _seen.update((id(module), module) for module in fresh)  # held, so that an id stays its own
    return fresh


def _is_torchs_own(kind: type) -> bool:
    """Whether a class of modules comes with torch.nn, where the functions have their usual names."""
    return kind.__module__.startswith("torch.nn.modules.")


def _bind_in(place: dict[str, Any]) -> None:
    """Bind wrappers to whatever names hold the functions."""
    if _wrappers.keys().isdisjoint(map(id, place.values())):  # nearly always
        return
    for name in [name for name, held in place.items() if id(held) in _wrappers]:
        _bind(place, name)


def _wrap(original: Function, watched: Callable[[Function], Function]) -> None:
    _wrappers[id(original)] = _wrapper_of(original, watched)


@functools.lru_cache(maxsize=8)
def _wrapper_of(original: Function, watched: Callable[[Function], Function]) -> Function:
    return functools.wraps(original)(watched(original))


def _bind(place: dict[str, Any], name: str) -> None:
    held = place.get(name)
    wrapper = _wrappers.get(id(held))
    if wrapper is not None and held is not wrapper:
        _bound[id(place), name] = (place, held)
        place[name] = wrapper


def _switch_off_fast_path(structure: Structure) -> None:
    global _fast_path_before
    if _fast_path_before is None and has_fast_path(structure):
        _fast_path_before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)


def _hearing(frame: FrameType | None) -> tuple[nn.Module | None, list[CallListener]]:
    """The innermost running module that a recorder watches, and those recorders."""
    if not _listeners or getattr(_local, "quiet", False) or interface.is_calling():
        return None, []
    while frame is not None:
        if frame.f_code is _MODULE_CALL:
            module = frame.f_locals["self"]
            if hearing := [listener for listener in _listeners if listener.watches(module)]:
                return module, hearing
        frame = frame.f_back
    return None, []


def _tell(
    hearing: list[CallListener],
    module: nn.Module,
    read: Callable[[], Call],
    output: Tensor,
) -> None:
    """Tell of a call, of which `output` is (b, h, q, v)."""
    kind = getattr(_local, "kind", "")
    for listener in hearing:
        try:
            listener.take(module, read(), output.transpose(1, 2), door="torch", kind=kind)
        except NotUnderstood as error:
            listener.refuse(module, str(error))


def _watched_sdpa(original: Function) -> Function:
    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
        module, hearing = _hearing(sys._getframe(1))
        output = original(*args, **kwargs)
        if module is not None:
            _tell(hearing, module, lambda: _understand_sdpa(*args, **kwargs), _four_axes(output))
        return output

    return scaled_dot_product_attention


def _watched_multi_head(original: Function) -> Function:
    signature = functools.cache(lambda: inspect.signature(original))  # when first needed

    def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
        module, hearing = _hearing(sys._getframe(1))
        result = None
        given = signature().bind(*args, **kwargs).arguments if module is not None else {}
        if module is None or given.get("need_weights", True):
            result = original(*args, **kwargs)
        if module is None:
            return result
        before = getattr(_local, "kind", "")
        _local.kind = "" if given["query"] is given["key"] else "cross"
        try:
            if result is None:
                return original(**given)
            # The same once more, without weights and without chance, for its queries and keys.
            again = {**given, "need_weights": False, "is_causal": False, "training": False}
            with torch.no_grad():
                repeated, _ = original(**again)
        finally:
            _local.kind = before
        by_chance = given.get("training", True) and given["dropout_p"] > 0
        if not by_chance and not _agree(result[0], repeated):
            for listener in hearing:
                listener.refuse(module, say("errors.repeat_differs"))
        return result

    return multi_head_attention_forward


def _agree(one: Tensor, other: Tensor) -> bool:
    """Whether two outputs are equal up to rounding, where the first is a number at all."""
    wide = one.detach().float()
    difference = (wide - other.float()).nan_to_num().abs().amax()
    return bool(difference <= torch.finfo(one.dtype).eps * 1e3 * wide.nan_to_num().abs().amax())


def _watched_regard(original: Function) -> Function:
    def attention(query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> Any:
        module, hearing = _hearing(sys._getframe(1))
        if module is None:
            return original(query, key, value, **kwargs)
        _local.quiet = True  # what it calls is how it computes, no attention of its own
        try:
            attended = original(query, key, value, **kwargs)
        finally:
            _local.quiet = False
        output = attended if isinstance(attended, Tensor) else attended.output
        _tell(hearing, module, lambda: _understand_regard(query, key, value, **kwargs), _four_axes(output))
        return attended

    return attention


def _understand_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Call:
    """A call of PyTorch's function: its causal hint counts queries and keys from 0."""
    lead = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        query.shape[:-3], key.shape[:-3], value.shape[:-3]
    )
    heads = query.shape[-3] if query.ndim > 2 else 1
    query, key, value = (_four_axes(tensor, lead) for tensor in (query, key, value))
    if not enable_gqa and heads == 1 < key.shape[1]:
        query = query.expand(-1, key.shape[1], -1, -1)
    if attn_mask is not None:
        rows = attn_mask if attn_mask.ndim < 4 else _four_axes(attn_mask, lead)
        attn_mask = rows.reshape((1,) * (4 - rows.ndim) + tuple(rows.shape))
    return Call(
        query=query,
        key=key,
        value=value.expand(-1, key.shape[1], -1, -1),
        mask=attn_mask,
        triangle=is_causal,
        causal=is_causal,
        scale=float(query.shape[-1] ** -0.5 if scale is None else scale),
        kernel="sdpa",
        dropout=float(dropout_p),
    )


def _understand_regard(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    training: bool = False,
    **_: Any,
) -> Call:
    """A call of `regard.attention`, whose rules count from the last query and key."""
    from regard.attend import masks

    if temperature != 1.0:
        raise NotUnderstood(f"temperature {temperature:g}")
    rules = [masks.causal()] if causal else []
    if window is not None:
        rules.append(masks.window(*window))
    if key_mask is not None:
        rules.append(masks.padding(key_mask))
    if mask is not None:
        rules.append(masks.dense(mask) if isinstance(mask, Tensor) else mask)
    return Call(
        query=_four_axes(query),
        key=_four_axes(key),
        value=_four_axes(value),
        mask=None,
        triangle=False,
        causal=causal,
        scale=float(query.shape[-1] ** -0.5 if scale is None else scale),
        kernel="regard",
        bias=bias,
        softcap=softcap,
        dropout=float(dropout_p) if training else 0.0,
        rule=functools.reduce(lambda one, other: one & other, rules) if rules else None,
    )


def _four_axes(tensor: Tensor, lead: torch.Size | None = None) -> Tensor:
    """(…, h, n, d) as (b, h, n, d): all axes before the heads are items; without heads there is one."""
    if tensor.ndim == 3:  # (b, n, d), as models of a single head write it
        return tensor[:, None]
    if tensor.ndim == 2:
        return tensor[None, None]
    if lead is not None:
        tensor = tensor.expand(*lead, *tensor.shape[-3:])
    return tensor.reshape(-1, *tensor.shape[-3:])
