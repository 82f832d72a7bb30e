"""Training the networks that are measured."""

from skipscope.training.loop import History, Settings, accuracy, train

__all__ = ["History", "Settings", "accuracy", "train"]
