"""The papers that come with skipscope. Each is a guest of the core, which imports none of them (`registration.py`)."""

from skipscope.papers.a import PAPER as A
from skipscope.papers.b import PAPER as B
from skipscope.papers.c import PAPER as C
from skipscope.papers.d import PAPER as D

PAPERS = (A, B, C, D)
