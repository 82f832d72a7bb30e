"""What paper C alone measures."""

from skipscope.papers.c.measures.sensitivity import layer_sensitivity, sensitivity

__all__ = ["layer_sensitivity", "sensitivity"]
