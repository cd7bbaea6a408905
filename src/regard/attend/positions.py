"""How an attention learns where its tokens stand: without positions it cannot tell one order from another.

    added to the embeddings       sinusoidal
    turning queries and keys      rotary, rotary_table, rotate; Linear, NTK, YaRN for longer contexts
    added to the logits           alibi_slopes, alibi_bias; relative_buckets, bucket_of

Learned positions are parameters, so they are in regard.nn.
"""

from regard.attend.alibi import alibi_bias, alibi_slopes
from regard.attend.relative import bucket_of, relative_buckets
from regard.attend.rotary import half_to_interleaved, interleaved_to_half, rotary, rotary_table, rotate
from regard.attend.rotary_scaling import NTK, Linear, Scaling, YaRN
from regard.attend.sinusoidal import sinusoidal

__all__ = [
    "NTK",
    "Linear",
    "Scaling",
    "YaRN",
    "alibi_bias",
    "alibi_slopes",
    "bucket_of",
    "half_to_interleaved",
    "interleaved_to_half",
    "relative_buckets",
    "rotary",
    "rotary_table",
    "rotate",
    "sinusoidal",
]
