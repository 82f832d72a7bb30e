"""Training the networks that are measured."""

from skipscope.training.evaluation import accuracy
from skipscope.training.history import History
from skipscope.training.hooks import At
from skipscope.training.loop import train
from skipscope.training.settings import Settings

__all__ = ["At", "History", "Settings", "accuracy", "train"]
