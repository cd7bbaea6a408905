"""docs/families.md: what became of every family, as a page for people, and read back to be compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import transformers

from families import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "families.md"

TITLES = {
    "encoders": "Encoders of text",
    "decoders": "Decoders of text",
    "encoder_decoders": "Encoders with decoders",
    "hybrids": "Hybrids: only some layers attend",
    "own_softmax": "Text, with a softmax of their own",
    "vision": "Images",
    "audio": "Sound and series",
    "multimodal": "Text with images or sound",
}

_HEAD = """# Families of models

What `regard.record` makes of the model classes of transformers {version}: each was built from a tiny random
configuration (tests/families), run once, and its recorded weights were compared with those of a second copy
that ran with `attn_implementation="eager"`. In batches the second item is padded: on the right for encoders,
on the left for decoders. The tests write this page: `REGARD_FAMILIES=write pytest tests/families`.

Doors: *interface* is Hugging Face's attention interface, *torch* PyTorch's attention function; *returned* are
weights as the model itself returns them when asked, where nothing can be recomputed.

| outcome | families | meaning |
| --- | --- | --- |
| recorded | {recorded} | every attention that ran is a site, every weight within 1e-5 of the model's own |
| in part | {part} | so for its sites; the attentions that are missing are named in the recording and here |
| refused | {refused} | no recording, and the reason |
| wrong | {wrong} | a weight that is not the model's, or an attention left out in silence |
"""

_COLUMNS = (
    "| family | class | door | sites | largest error | remark |\n| --- | --- | --- | --- | --- | --- |\n"
)


def page(outcomes: Iterable[Outcome]) -> str:
    """The whole page."""
    found = sorted(outcomes, key=lambda o: (list(TITLES).index(o.family.kind), o.family.name))
    counts = Counter(o.verdict for o in found)
    numbers = {name: counts[name] for name in ("recorded", "refused", "wrong")}
    parts = [_HEAD.format(version=transformers.__version__, part=counts["in part"], **numbers)]
    for kind, title in TITLES.items():
        rows = [_row(o) for o in found if o.family.kind == kind]
        parts.append(f"\n## {title}\n\n{_COLUMNS}{''.join(rows)}")
    return "".join(parts)


def facts(outcome: Outcome) -> tuple[str, ...]:
    """What of an outcome must be the same on every machine: class, outcome, door, sites."""
    return outcome.model_class, outcome.verdict, outcome.doors, outcome.sites


def committed() -> tuple[str, dict[str, tuple[str, ...]]]:
    """(version of transformers, facts by family) of the page as it stands."""
    text = PAGE.read_text(encoding="utf-8")
    version = re.search(r"transformers (\S+):", text)
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in text.splitlines() if "](../" in line]
    return version[1] if version else "", {_name(row[0]): tuple(row[1:5]) for row in rows}


def _row(outcome: Outcome) -> str:
    family = outcome.family
    error = f"{outcome.error:.0e}" if outcome.sites else ""
    reason = re.sub(r"(?<=differ by )\S+ of", "more than 1e-4 of", outcome.reason).replace("|", "/")
    cells = [f"[{family.name}](../tests/families/{family.kind}.toml)", *facts(outcome), error, reason]
    return f"| {' | '.join(cells)} |\n"


def _name(cell: str) -> str:
    return cell[1 : cell.index("]")]
