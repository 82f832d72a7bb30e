"""What a report shows of the datasets of paper B, by measure."""

from skipscope.papers.b.views.hessians import dynamics_view, epochs_view, initial_view
from skipscope.papers.b.views.theory import small_weights_view, zero_weights_view
from skipscope.papers.b.views.training import learning_view, norms_view, shortcuts_view
from skipscope.report.views import ViewOfMeasure

VIEWS = {
    "theory_zero_weights": ViewOfMeasure("The loss at zero weights", zero_weights_view),
    "theory_small_weights": ViewOfMeasure("Small weights that interpolate", small_weights_view),
    "shortcut_initial": ViewOfMeasure("Hessians before training", initial_view),
    "shortcut_dynamics": ViewOfMeasure("Hessians along training", dynamics_view),
    "shortcut_epochs": ViewOfMeasure("Index and gradient along training", epochs_view),
    "shortcut_learning": ViewOfMeasure("Learning of n-shortcut networks", learning_view),
    "shortcut_norms": ViewOfMeasure("Weights, states and branches by depth", norms_view),
    "shortcut_depths": ViewOfMeasure("Shortcut depth", shortcuts_view),
}
