"""Why another number of units is found than the design has, model by model, after a look at the sums in question."""

from __future__ import annotations

DIFFERENCES: dict[str, str] = {
    "swiftformer": "its attention adds the query to what it makes of it; that sum is a unit inside the attention's "
    "unit, which the count left out.",
    "timm swiftformer_xs": "as swiftformer: the sum with the query inside every attention.",
    "mimi encoder": "the count left out the two sums in each of the two layers of its transformer.",
    "seamless speech encoder": "the attention of its adapter is added to a gated linear unit of the state, which is no "
    "skip.",
    "timm gcresnet33ts": "the context block in every branch adds to its own input; that sum is a unit inside the "
    "branch, which the count left out.",
    "timm efficientformerv2_s0": "the last down-sampling adds attention to a convolution, and the query in it a "
    "convolution to a pooling; the count left these two sums out.",
    "timm dpn48b": "in the first block of each of its four stages the skip is a projection behind an activation of its "
    "own, which is no skip.",
}
