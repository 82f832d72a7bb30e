"""The networks of paper B: n-shortcut networks, their loss, their Hessian, and many of them trained side by side."""

from skipscope.papers.b.networks.ensemble import Ensemble as Ensemble
from skipscope.papers.b.networks.ensemble import Member as Member
from skipscope.papers.b.networks.ensemble import grid as grid
from skipscope.papers.b.networks.ensemble import member_weights as member_weights
from skipscope.papers.b.networks.ensemble import train_ensemble as train_ensemble
from skipscope.papers.b.networks.ensemble import train_grid as train_grid
from skipscope.papers.b.networks.hessian import ShortcutHessian as ShortcutHessian
from skipscope.papers.b.networks.hessian import shortcut_hessian as shortcut_hessian
from skipscope.papers.b.networks.loss import Moments as Moments
from skipscope.papers.b.networks.loss import Samples as Samples
from skipscope.papers.b.networks.loss import loss_and_gradient as loss_and_gradient
from skipscope.papers.b.networks.network import ShortcutNet as ShortcutNet
from skipscope.papers.b.networks.network import ShortcutSpec as ShortcutSpec
from skipscope.papers.b.networks.network import initial_weights as initial_weights
