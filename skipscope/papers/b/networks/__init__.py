"""The networks of paper B: n-shortcut networks, their loss, their Hessian, and many of them trained side by side."""

from skipscope.papers.b.networks.ensemble import Ensemble, Member, grid, member_weights, train_ensemble, train_grid
from skipscope.papers.b.networks.hessian import ShortcutHessian, shortcut_hessian
from skipscope.papers.b.networks.loss import Moments, Samples, loss_and_gradient
from skipscope.papers.b.networks.network import ShortcutNet, ShortcutSpec, initial_weights

__all__ = [
    "Ensemble",
    "Member",
    "Moments",
    "Samples",
    "ShortcutHessian",
    "ShortcutNet",
    "ShortcutSpec",
    "grid",
    "initial_weights",
    "loss_and_gradient",
    "member_weights",
    "shortcut_hessian",
    "train_ensemble",
    "train_grid",
]
