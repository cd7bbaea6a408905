"""What a file says of a recording, as JSON; everything large is a tensor that it names.

A header is not trusted: whatever does not fit together raises, and `store.open` turns that into one sentence.
"""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite, isinf, isnan
from typing import Any

import torch
from torch import Tensor

from regard.attend import masks
from regard.attend.kept import Largest
from regard.attend.mask import Mask
from regard.record.recording import Axis, Provenance, Recording
from regard.record.site import NAN, Proof, Site
from regard.record.tokens import Tokens

FORMAT = "regard.recording"
VERSION = 2  # the newest that is read; written only where a file holds what version 1 did not know

_PLAIN = ("name", "layer", "kind", "scale", "softcap", "kernel", "door", "queries", "keys")


def to_header(recording: Recording) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON-able header and named tensors of a recording; what sites share is stored once."""
    tensors: dict[str, Tensor] = {}
    rules: list[dict[str, Any]] = []
    index_of: dict[int, int] = {}  # id of a rule -> its place in `rules`
    bias_of: dict[int, str] = {}
    sites = []
    for i, site in enumerate(recording.sites):
        described: dict[str, Any] = {name: getattr(site, name) for name in _PLAIN}
        described["proof"] = proof_out(site.proof)
        tensors[f"site.{i}.query"], tensors[f"site.{i}.key"] = site.query, site.key
        if (lse := site.lse_if_known) is not None:
            tensors[f"site.{i}.lse"] = lse
        if site.cut is not None:
            described["head_numbers"], described["all_heads"] = list(site.head_numbers), site.all_heads
        if site.largest is not None:
            described["left_out"] = site.largest.left_out
            tensors[f"site.{i}.positions"] = site.largest.positions
            tensors[f"site.{i}.weights"] = site.largest.weights
        if site.sinks is not None:
            tensors[f"site.{i}.sinks"] = site.sinks
        if site.mask is not None:
            if id(site.mask) not in index_of:
                index_of[id(site.mask)] = len(rules)
                state, held = site.mask.state()
                tensors |= {f"mask.{len(rules)}.{name}": tensor for name, tensor in held.items()}
                rules.append(state)
            described["mask"] = index_of[id(site.mask)]
        if site.bias is not None:
            described["bias"] = bias_of.setdefault(id(site.bias), f"bias.{len(bias_of)}")
            tensors[described["bias"]] = site.bias
        sites.append(described)
    return (
        {
            "sites": sites,
            "masks": rules,
            "sequences": {name: axis_out(axis) for name, axis in recording.sequences.items()},
            "provenance": asdict(recording.provenance),
        },
        tensors,
    )


def version_of(header: dict[str, Any]) -> int:
    """The oldest version that can read this: some heads, or only the largest weights, came with 2."""
    return 2 if any("head_numbers" in site or "left_out" in site for site in header["sites"]) else 1


def from_header(header: dict[str, Any], tensors: dict[str, Tensor]) -> Recording:
    """The recording that a header and its tensors describe."""
    rules = [
        masks.from_state(state, _named(tensors, f"mask.{i}.")) for i, state in enumerate(header["masks"])
    ]
    sequences = {str(name): axis_in(axis) for name, axis in header["sequences"].items()}
    sites = tuple(_site_in(i, site, tensors, rules, sequences) for i, site in enumerate(header["sites"]))
    if not sites:
        raise ValueError("no sites")
    provenance = dict(header["provenance"])
    for name in ("kernels", "doors", "notes"):
        provenance[name] = tuple(provenance[name])
    provenance["texts"] = tuple(tuple(map(str, texts)) for texts in provenance["texts"])
    return Recording(sites, sequences, _checked(Provenance(**provenance)))


def _checked(origin: Provenance) -> Provenance:
    """Raise unless all that is said of the origin are texts, so that it can be shown and written again."""
    texts = [origin.model, origin.model_class, origin.source, origin.licence or "", origin.dtype]
    texts += [origin.device, origin.created, *origin.kernels, *origin.doors, *origin.notes]
    texts += [*origin.versions, *origin.versions.values()]
    if not all(isinstance(text, str) for text in texts) or not isinstance(origin.truncated, bool):
        raise ValueError("provenance")
    return origin


def _site_in(
    i: int,
    described: dict[str, Any],
    tensors: dict[str, Tensor],
    rules: list[Mask],
    sequences: dict[str, Axis],
) -> Site:
    largest = None
    if "left_out" in described:
        kept = tensors[f"site.{i}.positions"], tensors[f"site.{i}.weights"]
        largest = Largest(*kept, float(described["left_out"]))
    site = Site(
        **{name: described[name] for name in _PLAIN},
        query=tensors[f"site.{i}.query"],
        key=tensors[f"site.{i}.key"],
        sinks=tensors.get(f"site.{i}.sinks"),
        mask=rules[described["mask"]] if "mask" in described else None,
        bias=tensors[described["bias"]] if "bias" in described else None,
        cut=_cut_in(described) if "head_numbers" in described else None,
        largest=largest,
        proof=proof_in(described["proof"]),
    )
    site.scale = float(site.scale)
    site.softcap = None if site.softcap is None else float(site.softcap)
    _check_site(site, sequences)
    if largest is not None and f"site.{i}.lse" not in tensors:
        raise ValueError(f"lse of site {i}")
    if (lse := tensors.get(f"site.{i}.lse")) is not None:
        if lse.shape != site.query.shape[:3]:
            raise ValueError(f"lse of site {i}: {tuple(lse.shape)}")
        site.know_lse(lse)
    return site


def _cut_in(described: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    return tuple(map(int, described["head_numbers"])), int(described["all_heads"])


def _check_site(site: Site, sequences: dict[str, Axis]) -> None:
    """Raise unless all parts of a site fit together."""
    b, h, q, d = site.query.shape
    key_b, g, k, key_d = site.key.shape
    texts = (site.name, site.kind, site.kernel, site.door, site.queries, site.keys)
    if not all(isinstance(text, str) for text in texts) or not 0 <= _whole(site.layer) < 1 << 31:
        raise ValueError(f"site {site.name!r}, layer {site.layer!r}")
    if site.softcap is not None and not (isfinite(site.softcap) and site.softcap > 0):
        raise ValueError(f"softcap of {site.name}: {site.softcap}")
    if site.proof.rows < 0 or isinf(site.proof.max_error):
        raise ValueError(f"proof of {site.name}: {site.proof}")
    if (key_b, key_d) != (b, d) or not h or not g or h % g or not isfinite(site.scale):
        raise ValueError(f"shapes of {site.name}: {tuple(site.query.shape)}, {tuple(site.key.shape)}")
    numbers = site.head_numbers
    if len(numbers) != h or list(numbers) != sorted({n for n in numbers if 0 <= n < site.all_heads}):
        raise ValueError(f"heads of {site.name}: {numbers} of {site.all_heads}")
    if (kept := site.largest) is not None:
        shapes = {tuple(kept.positions.shape), tuple(kept.weights.shape)}
        if shapes != {(b, h, q, kept.count)} or kept.positions.dtype != torch.int32:
            raise ValueError(f"weights of {site.name}: {shapes}")
    if site.sinks is not None and tuple(site.sinks.shape) not in ((h,), (b, h, q)):
        raise ValueError(f"sinks of {site.name}: {tuple(site.sinks.shape)}")
    for axis, length in ((sequences[site.queries], q), (sequences[site.keys], k)):
        if len(axis.tokens) != b or any(span.stop > length for span in axis.spans):
            raise ValueError(f"tokens of {site.name}")
    if q and k:
        extent = (b, h, 1, k)
        if site.mask is not None:
            site.mask.tile(slice(0, 1), slice(0, k), (q, k)).broadcast_to(extent)
        if site.bias is not None:
            site.bias.broadcast_to((b, h, q, k))


def _whole(number: object) -> int:
    if type(number) is not int:
        raise ValueError(f"{number!r} is no whole number")
    return number


def proof_out(proof: Proof) -> dict[str, Any]:
    """A proof as JSON."""
    error = None if isnan(proof.max_error) else proof.max_error
    return {"rows": proof.rows, "max_error": error, "note": proof.note}


def proof_in(described: dict[str, Any]) -> Proof:
    """The proof that JSON describes."""
    error = described["max_error"]
    return Proof(int(described["rows"]), NAN if error is None else float(error), str(described["note"]))


def axis_out(axis: Axis) -> dict[str, Any]:
    """The tokens along an axis as JSON."""
    return {
        "tokens": [asdict(tokens) for tokens in axis.tokens],
        "spans": [[span.start, span.stop] for span in axis.spans],
        **({"written": list(axis.written)} if any(first is not None for first in axis.written) else {}),
    }


def axis_in(described: dict[str, Any]) -> Axis:
    """The axis that JSON describes."""
    spans = tuple(range(int(start), int(stop)) for start, stop in described["spans"])
    tokens = tuple(_tokens_in(one) for one in described["tokens"])
    if len(tokens) != len(spans) or any(len(t) != len(s) for t, s in zip(tokens, spans, strict=True)):
        raise ValueError("tokens and spans")
    if any(span.start < 0 for span in spans):
        raise ValueError("spans")
    written = tuple(None if first is None else int(first) for first in described.get("written", ()))
    if written and len(written) != len(spans):
        raise ValueError("written")
    if any(first is not None and not 0 <= first < len(s) for first, s in zip(written, spans, strict=False)):
        raise ValueError("written")
    return Axis(tokens, spans, written)


def _tokens_in(described: dict[str, Any]) -> Tokens:
    columns = Tokens(
        texts=tuple(map(str, described["texts"])),
        special=tuple(map(bool, described["special"])),
        segments=tuple(map(int, described["segments"])),
        ids=tuple(map(int, described["ids"])),
        offsets=tuple(None if o is None else (int(o[0]), int(o[1])) for o in described["offsets"]),
    )
    if len({len(column) for column in vars(columns).values()}) != 1:
        raise ValueError("tokens of unequal length")
    return columns


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
