"""Why another number of units is found than the design has, model by model, after a look at the sums in question."""

from __future__ import annotations

DIFFERENCES: dict[str, str] = {
    "gemma3n": "the prediction of its four streams, a sum with a product of matrices of the state, is not found; the "
    "mean of the streams at the end, each after a map of its own, is taken for a unit.",
    "swiftformer": "its attention adds the query to what it makes of it; that sum is a unit inside the attention's "
    "unit, which the count left out.",
    "timm swiftformer_xs": "as swiftformer: the sum with the query inside every attention.",
    "mimi encoder": "the count left out the two sums in each of the two layers of its transformer.",
    "seamless speech encoder": "the attention of its adapter is added to a gated linear unit of the state, which is no "
    "skip.",
    "timesformer": "what attention over space adds to is put together from the class token's mean over frames and the "
    "patches: its skip is taken for one of several paths.",
    "autoformer": "every sum is followed by the subtraction of a moving average, and the averages are collected beside "
    "the trunk: some of the sums of the last layer with them are taken for units.",
    "timm gcresnet33ts": "the context block in every branch adds to its own input; that sum is a unit inside the "
    "branch, which the count left out.",
    "timm efficientformerv2_s0": "the last down-sampling adds attention to a convolution, and the query in it a "
    "convolution to a pooling; the count left these two sums out.",
    "timm dpn48b": "a sum takes some channels of the branch, and the others go around it into a concatenation: no "
    "sum has all of what its branch computes.",
    "(ours) dual path": "as dpn48b: some channels of the branch go around the sum into a concatenation.",
    "timm tnt_s": "a patch is added to what all of its pixels become: the skip comes from one stream and the branch "
    "from the other, and nothing answers it, so that the two are no pair of streams.",
    "(ours) inner and outer": "as tnt_s: the sums from pixels to patches.",
    "(ours) Glow": "the skip is one half of the state times a function of the other half; pairs of streams are joined "
    "where they are added to, not where they are multiplied.",
}
