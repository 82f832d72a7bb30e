"""What paper C alone measures."""

from skipscope.papers.c.measures.sensitivity import layer_sensitivity, sensitivity

__all__ = ["MEASURES", "layer_sensitivity", "sensitivity"]

MEASURES = {"sensitivity": sensitivity, "layer_sensitivity": layer_sensitivity}
