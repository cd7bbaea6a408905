"""Number types by the names that safetensors gives them, and numbers as the bytes that it writes."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
TYPES = {name: dtype for dtype, name in DTYPES.items()}


def bytes_of(flat: Tensor) -> memoryview:
    """The bytes of a tensor with one axis, in main memory."""
    whole = flat.contiguous()  # may have any stride if it is of one number, which PyTorch 2.6 minds
    return whole.as_strided(whole.shape, (1,)).view(torch.uint8).numpy().data
