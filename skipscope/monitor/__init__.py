"""While a network trains: measurements in any loop, within a share of its time, and alarms in words.

monitor = ss.Monitor(model, x, targets=y, optimizer=optimizer, out="runs/first")
for images, labels in batches:
    ...
    optimizer.step()
    monitor.step(loss)

watching.py     the class
options.py      what a user gives to it, checked
measures.py     what is measured at a look: each is one of the library's own measurements, at the weights of now
pace.py         when to look, so that the monitor's share of the time stays within the budget
recording.py    looks, one after another, as datasets with the dimension `step`
alarms.py       from what was recorded to alarms: signals, rules with thresholds, sentences
untouched.py    what surrounds a look and is given back as it was found
following.py    the weights of a model that is sharded over processes
writers.py      TensorBoard, Weights & Biases, MLflow
callbacks.py    Lightning, the Trainer of Hugging Face
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skipscope.deferred import defer

if TYPE_CHECKING:
    from skipscope.monitor.alarms import Alarm
    from skipscope.monitor.watching import Monitor

__all__ = ["Alarm", "Monitor"]

defer(__name__, {"alarms": "Alarm", "watching": "Monitor"})
