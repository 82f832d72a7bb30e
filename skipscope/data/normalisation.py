"""Which normalisation a data set gets.

Colour images default to the constants of ImageNet, under which most published networks were trained, whatever the data
set; grey images to none. `dataset` takes the constants that are commonly published for that very set.
"""

from __future__ import annotations

from skipscope.data.dataset import AS_THEY_ARE, Normalisation
from skipscope.data.specs import written_constants
from skipscope.errors import InputError

IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

PUBLISHED = {
    "mnist": Normalisation((0.1307,), (0.3081,)),
    "fashion-mnist": Normalisation((0.2860,), (0.3530,)),
    "cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "imagenette": IMAGENET,
    "imagenet": IMAGENET,
}


def choose(asked: str, name: str, channels: int) -> Normalisation:
    """asked: default, none, imagenet, dataset, or m1,m2,m3/s1,s2,s3. name: of the data set."""
    if asked == "default":
        return IMAGENET if channels == 3 else AS_THEY_ARE
    if asked == "none":
        return AS_THEY_ARE
    if asked == "dataset":
        if name not in PUBLISHED:
            raise InputError(f"normalise: {name} has no published constants; {', '.join(PUBLISHED)} have")
        return PUBLISHED[name]
    chosen = IMAGENET if asked == "imagenet" else Normalisation(*written_constants(asked))
    if len(chosen.mean) != channels:
        raise InputError(
            f"normalise '{asked}' is for {len(chosen.mean)} channel(s); the images of {name} have {channels}"
        )
    return chosen
