"""The colours of weights in figures: one perceptually even ramp, a straight line in OKLab, as in the pages.

Reference: Björn Ottosson, "A perceptual color space for image processing" (2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.colors import ListedColormap

LOW, HIGH = "#ffffff", "#10243f"

_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def ramp(low: str = LOW, high: str = HIGH, count: int = 256) -> ListedColormap:
    """`count` colours from `low` to `high`, evenly spaced for the eye."""
    from matplotlib.colors import ListedColormap, to_rgb

    ends = np.stack([_lab(np.array(to_rgb(colour))) for colour in (low, high)])
    share = np.linspace(0, 1, count)[:, None]
    return ListedColormap(_rgb(ends[0] + share * (ends[1] - ends[0])), name="regard")


def _lab(rgb: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab: Float[np.ndarray, "*n 3"] = np.cbrt(linear @ _TO_LMS.T) @ _TO_LAB.T
    return lab


def _rgb(lab: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    linear = ((lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T).clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
