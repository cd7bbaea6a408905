"""Families of models for the tests of recording: tiny random models from a table of data, and the truth.

A family is an entry of tests/families/*.toml: what to change in the usual tiny configuration, and what goes
in. The truth about its weights comes from a second copy of the model that runs with
attn_implementation="eager": the second value that each call of the eager function returns, or, for models
that compute their softmax themselves, what that softmax gave.
"""

from __future__ import annotations

import tomllib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

_SAYS_WHAT_IS_MISSING = ("Not recorded, because", "No softmax attention was seen")
TOLERANCE = 1e-5  # of weights in float32, over two models whose kernels round differently

TABLE = Path(__file__).parents[1] / "families"

# The usual configuration, each value for the configurations that have such a field.
USUAL: dict[str, Any] = tomllib.loads((TABLE / "usual.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Family:
    """One entry of the table."""

    name: str
    kind: str  # the file that it stands in: encoders, decoders, vision …
    model_type: str
    config: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, list[int]] = field(default_factory=dict)  # name -> shape
    values: dict[str, Any] = field(default_factory=dict)  # name -> the numbers themselves
    ones: dict[str, list[int]] = field(default_factory=dict)  # name -> shape
    placeholder: dict[str, int] = field(default_factory=dict)  # the id of image tokens, and how many
    model_class: str = "AutoModel"
    padding: str = "right"
    gain: float = 1.0  # of the random parameters; large ones make weights sharp, and rounding too
    sinks: str = "in the softmax"  # or "after": the eager function then returns weights without them
    other_softmaxes: int = 0  # that are no attention over keys: routers, indexers, pooled states
    pieces: int = 0  # calls beyond the first by which an attention is computed: of packed images, of halves


def families() -> list[Family]:
    """All entries, file by file."""
    found = []
    for path in sorted(TABLE.glob("*.toml")):
        if path.stem == "usual":
            continue
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        usual = table.pop("usual", {})
        table |= {name: {} for name in table.pop("plain", ())}
        for name, entry in sorted(table.items()):
            merged = {**usual, **entry}
            merged.setdefault("model_type", name)
            found.append(Family(name, path.stem, **merged))
    return found


def configuration(family: Family) -> Any:
    """The tiny configuration of a family."""
    return _tiny(CONFIG_MAPPING[family.model_type], family.config)


def _tiny(config_class: Any, changes: dict[str, Any]) -> Any:
    """A configuration with the usual values where it has such fields, and the changes; so for its parts."""
    base = config_class()
    named = set(config_class.attribute_map)
    values = {}
    for key, value in USUAL.items():
        if key not in named and key in vars(base) and not isinstance(vars(base)[key], list | tuple | dict):
            values[key] = value
    for part in config_class.sub_configs:
        if (inner := getattr(base, part, None)) is not None:
            wanted = dict(changes.get(part, {}))
            other = wanted.pop("model_type", None)  # a part of another kind
            values[part] = _tiny(CONFIG_MAPPING[other] if other else type(inner), wanted)
    left_out = [key for key, value in changes.items() if value == "default"]
    values |= {key: value for key, value in changes.items() if key not in config_class.sub_configs}
    return config_class(**{key: value for key, value in values.items() if key not in left_out})


def build(family: Family, implementation: str | None = None) -> nn.Module:
    """The family's model, with random parameters large enough that its attentions look somewhere."""
    import transformers

    config = configuration(family)
    if implementation is not None:
        config._attn_implementation = implementation
    torch.manual_seed(0)
    factory = getattr(transformers, family.model_class)
    model = factory.from_config(config) if family.model_class.startswith("Auto") else factory(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim >= 2:
                parameter.copy_(
                    noise * (family.gain / isqrt(max(1, parameter.numel() // parameter.shape[0])))
                )
            else:
                parameter.copy_(torch.nan_to_num(parameter).clamp(-5, 5) + 0.2 * noise)
    return model.eval()


def inputs_of(family: Family, model: nn.Module) -> dict[str, Tensor]:
    """Random inputs of the shapes that the family asks for; in masks, the second item is shorter by two."""
    generator = torch.Generator().manual_seed(2)
    given = {}
    for name, shape in family.inputs.items():
        if name.endswith("mask") and len(shape) == 2:
            mask = torch.ones(shape, dtype=torch.long)
            mask[1:, slice(None, 2) if family.padding == "left" else slice(-2, None)] = 0
            given[name] = mask
        elif name.endswith("ids") or name == "bbox":
            given[name] = torch.randint(3, 90, shape, generator=generator)
            if name == "bbox":
                given[name] = given[name].sort(-1).values[..., [0, 1, 2, 3]]
        else:
            given[name] = torch.randn(shape, generator=generator)
    if family.placeholder:
        given["input_ids"][:, 3 : 3 + family.placeholder["count"]] = family.placeholder["id"]
    given |= {name: torch.ones(shape, dtype=torch.long) for name, shape in family.ones.items()}
    return given | {name: torch.tensor(numbers) for name, numbers in family.values.items()}


@dataclass
class Truth:
    """What a run of the eager copy showed."""

    calls: dict[str, list[Tensor]] = field(
        default_factory=lambda: defaultdict(list)
    )  # module's name -> weights
    softmaxes: list[Tensor] = field(
        default_factory=list
    )  # of every softmax over three or more axes, in order

    def weights_of(self, name: str, time: int, like: Tensor) -> Tensor | None:
        """Weights of a call of a module: from its function, else the softmax nearest to `like`."""
        calls = self.calls[name]
        if len(calls) > 1 and sum(one.shape[-1] for one in calls) == like.shape[-1]:
            heads = [
                [one[0, head] for one in calls] for head in range(like.shape[1])
            ]  # pieces of one attention
            return torch.stack([torch.block_diag(*pieces) for pieces in heads])[None]
        if len(calls) > time:
            return calls[time]
        alike = [one.reshape(like.shape) for one in self.softmaxes if one.numel() == like.numel()]
        return min(alike, key=lambda one: float((one - like).abs().max()), default=None)


class _Softmaxes(TorchDispatchMode):
    """Keeps what every softmax gives, below whatever called it."""

    def __init__(self, found: Truth) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._softmax.default and args[0].ndim >= 3:
            self.found.softmaxes.append(result)
        if func is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
            self.found.softmaxes.append(_within_the_kernel(*args, **(kwargs or {})))
        return result


def _within_the_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The weights that a fused kernel does not give, by their definition."""
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    return scores.softmax(-1)


def truth(family: Family, inputs: dict[str, Tensor]) -> Truth:
    """Run the eager copy."""
    model = build(family, "eager")
    found = Truth()
    with torch.no_grad(), _in_order(), _listening(found, model), _Softmaxes(found):
        model(**inputs)
    return found


@contextmanager
def _listening(found: Truth, model: nn.Module) -> Iterator[None]:
    """Note the weights that the eager function of the interface returns."""
    from transformers.modeling_utils import AttentionInterface

    names = {id(module): name for name, module in model.named_modules()}
    original = AttentionInterface.get_interface

    def get_interface(self: Any, implementation: str, default: Any) -> Any:
        function = original(self, implementation, default)

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = function(module, *args, **kwargs)
            if result[1] is not None:
                found.calls[names.get(id(module), "")].append(result[1])
            return result

        return called

    AttentionInterface.get_interface = get_interface
    try:
        yield
    finally:
        AttentionInterface.get_interface = original


@dataclass(frozen=True)
class Outcome:
    """What came of recording a family."""

    family: Family
    model_class: str
    verdict: str  # recorded, in part, refused or wrong
    sites: str = ""  # how many of each kind
    doors: str = ""
    error: float = 0.0
    reason: str = ""


def outcome(family: Family) -> Outcome:
    """Record the family's model with its usual kernels, and compare with the eager copy."""
    import regard
    from regard.errors import RecordingError
    from regard.words import say

    with quiet():
        model = build(family)
        inputs = inputs_of(family, model)
        found = truth(family, inputs)
        try:
            with _in_order():
                recording = regard.record(model, inputs)
        except RecordingError as error:
            return Outcome(family, type(model).__name__, "refused", reason=str(error))
    error, reasons = _compare(recording, found, family, model)
    usual = say("notes.asked_again")  # what the door "returned" means
    notes = tuple(note for note in recording.provenance.notes if note != usual)
    missing = len(found.softmaxes) - family.other_softmaxes - family.pieces - len(recording.sites)
    if missing < 0:
        reasons.append(f"{-missing} sites more than attentions that ran")
    if missing > 0 and not any(note.startswith(_SAYS_WHAT_IS_MISSING) for note in notes):
        reasons.append(f"attentions missing without a word: {missing}")
    kinds = Counter(site.kind for site in recording.sites)
    return Outcome(
        family,
        type(model).__name__,
        "wrong" if reasons else "in part" if missing > 0 else "recorded",
        ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        ", ".join(recording.provenance.doors),
        error,
        "; ".join([*reasons, *notes]),
    )


def _compare(recording: Any, found: Truth, family: Family, model: nn.Module) -> tuple[float, list[str]]:
    """The largest difference over all sites and items, and what is wrong."""
    first_names = {id(module): name for name, module in model.named_modules()}
    times: dict[str, int] = defaultdict(int)
    worst, reasons = 0.0, []
    for site in recording.sites:
        whole = torch.stack([_all_weights(site, item) for item in range(site.query.shape[0])])
        sinks = None if site.sinks is None else site.sinks[:, None] if site.sinks.ndim == 1 else site.sinks
        total = whole.sum(-1) + (0 if sinks is None else (sinks - site.lse).exp())
        if not bool(((total - 1).abs() <= TOLERANCE)[total > 0].all()):
            reasons.append(
                f"{site.name}: rows and sinks sum to {float(total.min()):.2g} … {float(total.max()):.2g}"
            )
        if family.sinks == "after":
            whole = whole / whole.sum(-1, keepdim=True)
        called = first_names[id(model.get_submodule(site.name))]
        true = found.weights_of(called, times[called], whole)
        times[called] += 1
        if true is None or true.shape != whole.shape:
            shape = None if true is None else tuple(true.shape)
            reasons.append(f"{site.name}: shape {tuple(whole.shape)}, eager {shape}")
            continue
        for item in range(site.query.shape[0]):
            rows, cols = (
                recording.sequences[site.queries].spans[item],
                recording.sequences[site.keys].spans[item],
            )
            part = (item, slice(None), slice(rows.start, rows.stop), slice(cols.start, cols.stop))
            worst = max(worst, float((whole[part] - true[part]).abs().max()))
    if not worst <= TOLERANCE:
        reasons.append(f"weights differ by {worst:.1e}")
    return worst, reasons


def _all_weights(site: Any, item: int) -> Tensor:
    rows, cols = slice(0, site.query.shape[2]), slice(0, site.key.shape[2])
    weights: Tensor = site.scores(item).weights(rows, cols, site.lse_of(item, rows))
    return weights


@contextmanager
def _in_order() -> Iterator[None]:
    """Without the shuffling of patches by some models (ViLT), which no two runs do alike."""
    original = torch.multinomial
    torch.multinomial = lambda weights, count, *_, **__: torch.arange(count)  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.multinomial = original


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that models give about themselves."""
    import transformers

    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(level)
