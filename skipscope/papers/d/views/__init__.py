"""What a report shows of the datasets of paper D, by measure."""

from skipscope.papers.d.views.noise import noise_view
from skipscope.papers.d.views.scaling import scaling_view
from skipscope.report.views import ViewOfMeasure

VIEWS = {
    "scaling": ViewOfMeasure("Scaled skips", scaling_view),
    "noise": ViewOfMeasure("Weights mixed with noise", noise_view),
}
