# %% [markdown]
# # Your training run
#
# A loss curve says that a training goes wrong, and mostly late. Here we train a small residual network on the digits
# with `ss.Monitor` beside it, look at what it recorded, repeat the run with a bug in its schedule, and see when the
# alarm rings and when the loss shows it. Nothing is downloaded. It takes about
# three minutes on 2 cores of a shared server.

# %%
import tempfile
from pathlib import Path

import plotly.graph_objects as go
import torch
from IPython.display import Markdown

import skipscope as ss
from skipscope.data import digits

STEPS = 300
EVERY = 10
BUG_AT = 150

data = digits().train
images, labels = data.images(torch.arange(len(data))), data.labels
x, y = images[:32], labels[:32]  # the batch that every look is at
runs = Path(tempfile.mkdtemp())

# %% [markdown]
# ## A loop with one more line
#
# The monitor is made before the loop and told of every step of the optimizer. This network is so small that a step
# takes a few milliseconds, and a look as long as many of them: so `budget=None` allows as much time as looks take. In a
# training of hours leave it at its default of 5 %, and the monitor finds out by itself how often it can look.


# %%
def train(name, rate_at, every=EVERY, measures=("sizes", "stable_rank", "sharpness")):
    """rate_at: the learning rate at each step. every: steps between two looks; None for no monitor."""
    torch.manual_seed(0)
    model = ss.build("resnet14-digits-n8")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate_at(0), momentum=0.9)
    monitor = None
    if every is not None:
        options = {"targets": y, "optimizer": optimizer, "out": runs / name}
        monitor = ss.Monitor(model, x, every, measures, budget=None, **options)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        chosen = torch.randint(len(images), (64,))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if monitor is not None:
            monitor.step(loss)
    if monitor is not None:
        monitor.close()
    return model, losses, monitor


model, losses, monitor = train("sound", lambda step: 0.05)
print(monitor)

# %% [markdown]
# Each measure is a dataset with the dimension `step`:

# %%
monitor["sizes"][["state_rms", "gradient_gain", "branch_over_skip"]].isel(step=-1).to_dataframe()

# %%
ss.plot.monitored(monitor.datasets).show(width=900)

# %% [markdown]
# ## It changed nothing
#
# The same training without the monitor: the losses and all weights are the same to the last bit.

# %%
alone, losses_alone, _ = train("", lambda step: 0.05, every=None)
same = all(torch.equal(one, two) for one, two in zip(model.parameters(), alone.parameters(), strict=True))
print("losses equal:", losses == losses_alone, "- weights equal:", same)

# %% [markdown]
# ## The same run with a bug
#
# A warm-up that never ends: from one step on the rate grows by 5 % per step.


# %%
def growing(step):
    return 0.05 * 1.05 ** max(0, step - BUG_AT)


_, losses_with_bug, with_bug = train("bug", growing)
print(with_bug)

# %%
figure = go.Figure(layout={"template": "plotly_white", "width": 800, "height": 350, "margin": {"t": 20}})
for title, values in (("sound", losses), ("with the bug", losses_with_bug)):
    figure.add_scatter(y=values, name=title, mode="lines")
for alarm in with_bug.alarms[:1]:
    figure.add_vline(x=alarm.step, line={"dash": "dot"}, annotation_text=alarm.name)
figure.update_xaxes(title_text="step")
figure.update_yaxes(title_text="loss", type="log")
figure.show()

# %% [markdown]
# The alarm about the sharpness knows the rate at every step and the sharpness of the last look: it rings when that is
# above 1.5 times what the rate can bear.

# %%
first = with_bug.alarms[0] if with_bug.alarms else None
lowest = min(losses_with_bug[:BUG_AT])
shown = next((step for step in range(BUG_AT, STEPS) if losses_with_bug[step] > lowest + 1), None)
rang = "no alarm rang" if first is None else f"the first alarm rang at step {first.step} ({first.name})"
Markdown(f"The bug begins at step {BUG_AT}, {rang}, and the loss is 1.0 above its lowest at step {shown}.")

# %% [markdown]
# That is hardly a warning. (Beside the sound run the loss is higher from about step 180 on, but who trains once has no
# sound run to compare with.) A training whose rate grows slowly moves to places that are less sharp: at the looks the
# sharpness falls as its limit does, and stays near it. It goes above the limit for a few steps at a time, and looks
# that are rare miss that. The same run again, with the sharpness alone and more looks:

# %%
lines = []
for every in (EVERY // 2, max(1, EVERY // 5)):
    _, _, found = train(f"each-{every}", growing, every, ["sharpness"])
    rang = "no alarm" if not found.alarms else f"first alarm at step {found.alarms[0].step} ({found.alarms[0].name})"
    lines.append(f"a look each {every} steps: {rang}")
print("\n".join(lines))

# %% [markdown]
# A look at the sharpness costs some 70 passes forward and backward. So where rates may go wrong, as with a new
# schedule, leave dear measures out and look often: `measures=["sizes", "sharpness"]`, a small `every=`, and a `budget=`
# that allows it.

# %% [markdown]
# ## Side by side
#
# Both runs left a folder, and `skipscope report RUN RUN` puts them on one page, with the steps as the axis. The same
# datasets are there in Python:

# %%
figure = go.Figure(layout={"template": "plotly_white", "width": 800, "height": 350, "margin": {"t": 20}})
for title, found in (("sound", monitor), ("with the bug", with_bug)):
    sizes = found["sizes"]
    figure.add_scatter(x=sizes["step"], y=sizes["state_rms"].max("unit"), name=title)
figure.update_xaxes(title_text="step")
figure.update_yaxes(title_text="largest state of a unit (RMS)", type="log")
figure.show()

# %% [markdown]
# ## In your own training
#
# Take a batch of some tens of your samples, and put `monitor.step(loss)` after `optimizer.step()`; or give
# `monitor.lightning()` or `monitor.huggingface()` to your Trainer. `on_alarm=` is called with every alarm, and
# `sys.exit(monitor.exit_code)` at the end of a script tells a scheduler. The page *While it trains* has the rest.
