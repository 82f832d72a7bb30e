from skipscope.spectrum.plan import DENSE_SIDE  # noqa: F401
