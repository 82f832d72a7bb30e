"""Theorems of paper B as code: closed forms and constructions, each of which can be checked and printed."""

from skipscope.papers.b.theory.hessian_at_zero import HessianAtZero as HessianAtZero
from skipscope.papers.b.theory.hessian_at_zero import commutation as commutation
from skipscope.papers.b.theory.hessian_at_zero import hessian_at_zero as hessian_at_zero
from skipscope.papers.b.theory.hessian_at_zero import hessian_from_moments as hessian_from_moments
from skipscope.papers.b.theory.interpolation import SmallNormNetwork as SmallNormNetwork
from skipscope.papers.b.theory.interpolation import theorem1 as theorem1
from skipscope.papers.b.theory.interpolation import unit_labels as unit_labels
from skipscope.papers.b.theory.lemmas import LemmaOne as LemmaOne
from skipscope.papers.b.theory.lemmas import SpherePath as SpherePath
from skipscope.papers.b.theory.lemmas import lemma1 as lemma1
from skipscope.papers.b.theory.lemmas import lemma2 as lemma2
