"""What a report shows of the datasets of paper C, by measure."""

from skipscope.papers.c.views.layer_conditions import conditions_along_view, gradient_ranks_view, layer_conditions_view
from skipscope.papers.c.views.norms import norms_view
from skipscope.papers.c.views.theory import products_view
from skipscope.papers.c.views.twins import drift_view, generalisation_view, twins_view
from skipscope.report.views import ViewOfMeasure

VIEWS = {
    "twins": ViewOfMeasure("Networks with and without skips", twins_view),
    "generalisation": ViewOfMeasure("Conditioning and generalisation", generalisation_view),
    "drift": ViewOfMeasure("DiracNets", drift_view),
    "layer_conditions": ViewOfMeasure("Condition numbers of trained networks", layer_conditions_view),
    "conditions_along": ViewOfMeasure("Condition numbers along the training", conditions_along_view),
    "gradient_ranks": ViewOfMeasure("Ranks of errors and gradients", gradient_ranks_view),
    "statements": ViewOfMeasure("Statements with and without batch norms", norms_view),
    "theory_products": ViewOfMeasure("Products of many weights", products_view),
}
