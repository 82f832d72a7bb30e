"""Theorems of paper B as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.papers.b.theory.hessian_at_zero import HessianAtZero, commutation, hessian_at_zero, hessian_from_moments
from skipscope.papers.b.theory.interpolation import SmallNormNetwork, theorem1
from skipscope.papers.b.theory.labels import unit_labels
from skipscope.papers.b.theory.moving_unit import LemmaOne, lemma1
from skipscope.papers.b.theory.sphere_path import SpherePath, lemma2

__all__ = [
    "HessianAtZero",
    "LemmaOne",
    "SmallNormNetwork",
    "SpherePath",
    "commutation",
    "hessian_at_zero",
    "hessian_from_moments",
    "lemma1",
    "lemma2",
    "theorem1",
    "unit_labels",
]
