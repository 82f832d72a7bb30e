"""What an operation does to its input, in the few words that finding units needs.

layout     moves or selects entries: views, permutations, slices, concatenations
pointwise  one output entry from the entries at the same place
norm       normalises over some axes; affine once its statistics are fixed
reduce     collapses axes: mean, sum, softmax
pool       combines the entries of a window, without parameters; also resampling
pad        adds zeros
mix        combines entries at different places: convolutions, matrix products, attention, Fourier transforms

An operation that is not listed and not tagged by torch counts as `mix`: it does something.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

LAYOUT = frozenset(
    "view reshape _unsafe_view permute transpose t T mT numpy_T adjoint unsqueeze squeeze expand expand_as "
    "select slice narrow split split_with_sizes chunk unbind cat concat stack hstack vstack dstack getitem "
    "clone alias contiguous detach _to_copy to roll flip repeat repeat_interleave tile index index_select "
    "gather take_along_dim pixel_shuffle pixel_unshuffle channel_shuffle unfold im2col col2im swapaxes movedim "
    "moveaxis flatten unflatten diagonal tril triu as_strided view_as_real view_as_complex real imag "
    "select_scatter slice_scatter tensor_split ravel atleast_2d squeeze_copy view_copy permute_copy slice_copy "
    "expand_copy broadcast_to lift_fresh_copy index_put".split()
)
NORM = frozenset(
    "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "cudnn_batch_norm layer_norm native_layer_norm group_norm native_group_norm instance_norm rms_norm "
    "_fused_rms_norm local_response_norm".split()
)
POOL = frozenset(
    "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d "
    "avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d lp_pool1d lp_pool2d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d "
    "upsample_linear1d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "_upsample_nearest_exact2d grid_sampler grid_sampler_2d".split()
)
PAD = frozenset("pad constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d".split())
REDUCE = frozenset(
    "mean sum var std var_mean std_mean amax amin max min prod norm linalg_vector_norm logsumexp softmax "
    "_softmax log_softmax _log_softmax nansum median argmax argmin any all count_nonzero topk "
    "sort _safe_softmax".split()
)
POINTWISE = frozenset(  # not all of them are tagged so in every version of torch
    "relu relu6 leaky_relu prelu rrelu elu celu selu gelu silu mish hardtanh hardswish hardsigmoid softplus softsign "
    "logsigmoid log_sigmoid_forward threshold sigmoid tanh softshrink hardshrink tanhshrink native_dropout dropout "
    "feature_dropout alpha_dropout masked_fill where".split()
)
# Made from the size or type of a tensor alone: no path for its entries.
SHAPE_ONLY = frozenset(
    "zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_empty "
    "sym_size sym_stride sym_numel".split()
)
# Linear in their tensor argument when every other operand is no path.
LINEAR_POINTWISE = frozenset("mul div neg add sub rsub dropout native_dropout masked_fill true_divide".split())
LINEAR_MIX = frozenset(
    "conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d linear mm bmm matmul "
    "mv addmm baddbmm einsum dot tensordot _convolution cumsum".split()
)
PRODUCT = frozenset("mul div mm bmm matmul mv dot einsum baddbmm addmm scaled_dot_product_attention".split())


def name(node: fx.Node) -> str:
    """`aten.add.Tensor` -> `add`; a Python function by its own name."""
    return _name_of(node.target)


@cache
def _name_of(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.split("::")[-1]
    return getattr(target, "__name__", str(target))


def kind(node: fx.Node) -> str:
    return _kind_of(node.target)


@cache
def _kind_of(target: Any) -> str:
    operation = _name_of(target)
    if target is operator.getitem or operation in LAYOUT:
        return "layout"
    if getattr(target, "_overloadname", "") == "other":  # the larger of two tensors: max(z, 0)
        return "pointwise"
    for group, names in (("norm", NORM), ("pool", POOL), ("pad", PAD), ("reduce", REDUCE), ("pointwise", POINTWISE)):
        if operation in names:
            return group
    tags = getattr(target, "tags", ())
    return "pointwise" if torch.Tag.pointwise in tags else "mix"


def same_shape(a: fx.Node, b: fx.Node) -> bool:
    """Do two nodes hold tensors of one shape? Their sizes are compared as expressions: comparing sizes adds guards."""
    one, other = a.meta.get("val"), b.meta.get("val")
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.dim() != other.dim():
        return False
    return one is other or all(expression(x) == expression(y) for x, y in zip(one.shape, other.shape, strict=True))


def expression(size: Any) -> Any:
    """A size or number of an exported graph, in the batch symbol."""
    return size.node.expr if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) else size


DISPLAY = {
    "_native_batch_norm_legit_no_training": "batch_norm",
    "native_batch_norm": "batch_norm",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "hardtanh": "relu6",
}


def display(node: fx.Node) -> str:
    """The name that a reader knows the operation by."""
    operation = name(node)
    if operation == "hardtanh" and tuple(node.args[1:3]) not in ((0, 6), (0.0, 6.0)):
        return "hardtanh"
    return DISPLAY.get(operation, operation.lstrip("_"))
