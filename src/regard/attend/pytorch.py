"""Which PyTorch this is: what is written here works from 2.6 on, and asks where that takes different ways."""

from __future__ import annotations

import torch

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
