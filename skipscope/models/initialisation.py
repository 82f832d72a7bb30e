"""Initial weights of convolutions and matrices.

    he          normal, of variance gain^2 / fan: He et al., ICCV 2015
    xavier      normal, of variance 2 / (fan in + fan out): Glorot and Bengio, AISTATS 2010
    orthogonal  rows (a filter is one) or columns orthogonal, of norm gain: Saxe et al., ICLR 2014
    small       normal, of standard deviation 0.01

The gain is sqrt(2) with ReLU and 1 without an activation. The fan-out of a grouped convolution counts all groups, as in
Xie et al.'s code and in torchvision.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

SMALL_DEVIATION = 0.01  # standard deviation of the initial weights "small"


def draw(layers: Iterable[nn.Module], initial: str, activation: str, fan: str = "fan_out") -> None:
    """New weights in the order of the layers. fan: of He et al.'s variance, fan_in or fan_out."""
    for layer in layers:
        weight = layer.weight
        if initial == "he":
            nn.init.kaiming_normal_(weight, mode=fan, nonlinearity=activation)  # type: ignore[arg-type]
        elif initial == "xavier":
            nn.init.xavier_normal_(weight)  # type: ignore[arg-type]
        elif initial == "orthogonal":
            nn.init.orthogonal_(weight, nn.init.calculate_gain(activation))  # type: ignore[arg-type]
        else:
            nn.init.normal_(weight, std=SMALL_DEVIATION)  # type: ignore[arg-type]
