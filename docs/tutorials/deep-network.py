# %% [markdown]
# # Why a 60-layer network fails, and what fixes it
#
# A network of 60 layers can have good layers, a good optimiser and good data, and still not learn. Here we take one
# that fails, ask `ss.check` before any training what is wrong and what would mend it, and then train everything to
# see whether that was right. The data are the 8 x 8 digits that come with scikit-learn, so nothing is downloaded. It
# takes a few minutes on 2 cores.

# %%
import pandas
import plotly.graph_objects as go
import torch
from IPython.display import Markdown

import skipscope as ss
from skipscope.data import digits
from skipscope.training import FleetMember, Settings, train_fleet

EPOCHS = 10
SEEDS = 2

data = digits()
x = data.test_batch(32)  # the check looks at 32 images; labels are not needed

# %% [markdown]
# ## A network that should work
#
# 60 fully connected layers with batch norm and ReLU, with initial weights after He et al.: each layer keeps the size
# of its state. `plainnet60-digits-connected` is its name in skipscope; a module of your own works the same way.

# %%
torch.manual_seed(0)
plain = ss.build("plainnet60-digits-connected")
forecast = ss.check(plain, x)
print(forecast.verdict)
for finding in forecast.findings:
    print("-", finding.sentence)

# %% [markdown]
# So it is not the size of the states, which a look at activations would have shown, but the gradients on their way
# back: they grow with every layer. The profile of the layers shows where.

# %%
NAMES = {
    "plain, norms": "plainnet60-digits-connected",
    "plain, no norms": "plainnet60-digits-connected-nonorm",
    "skips, no norms": "resnet60-digits-connected-nonorm",
    "skips, branches x 0.1, no norms": "resnet60-digits-connected-nonorm-scale10",
    "skips, norms": "resnet60-digits-connected",
}
forecasts = {"plain, norms": forecast}
for title, name in NAMES.items():
    if title not in forecasts:
        torch.manual_seed(0)
        forecasts[title] = ss.check(ss.build(name), x)


def along_the_layers(variable, label):
    figure = go.Figure(layout={"template": "plotly_white", "width": 800, "height": 380, "margin": {"t": 20}})
    for title, found in forecasts.items():
        values = found.layers[variable].values
        figure.add_scatter(y=values, name=title, mode="lines")
    figure.update_yaxes(type="log", exponentformat="power", title=label)
    figure.update_xaxes(title="layer")
    return figure


along_the_layers("gradient_rms", "size of the gradient")

# %% [markdown]
# Read it from right to left, the way gradients travel. With norms and no skips ("plain, norms") they grow by a
# factor of about 1.2 per layer, and over 60 layers that is five orders of magnitude. Without norms they stay in
# range, but look at the states:

# %%
along_the_layers("rank", "effective rank of the states")

# %% [markdown]
# The effective rank says in how many directions the 32 images differ. Without norms and without skips it falls to two
# or three. Skips alone do not help: without norms every block adds its branch to the state, the state grows, and in the
# last layers all images look the same.
#
# ## What would mend it
#
# The check tries remedies on copies of the network before it names them. For the plain network with norms:

# %%
table = pandas.DataFrame(
    [(trial.remedy, ", ".join(trial.broken) or "nothing") for trial in forecast.trials],
    columns=["remedy, tried on a copy", "still broken"],
)
table.style.hide(axis="index")

# %% [markdown]
# Other initial weights do not help; skips do. And for the network with skips but without norms:

# %%
table = pandas.DataFrame(
    [(trial.remedy, ", ".join(trial.broken) or "nothing") for trial in forecasts["skips, no norms"].trials],
    columns=["remedy, tried on a copy", "still broken"],
)
table.style.hide(axis="index")

# %% [markdown]
# It needs something that keeps the branches small beside the skip: norms, or simply a factor of 0.1.
#
# ## Train all of them
#
# Five kinds of network, several seeds each, the same data and settings. `train_fleet` trains them together; of each
# only the last test accuracy is kept.

# %%
members = []
for name in NAMES.values():
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        members.append(FleetMember(ss.build(name), data.train, Settings(EPOCHS, rate=0.05, seed=seed), data.test))
histories = train_fleet(members, test_every=EPOCHS)

# %%
rows, figure = [], go.Figure(layout={"template": "plotly_white", "width": 800, "height": 380, "margin": {"t": 20}})
accuracies = {}
for place, (title, found) in enumerate(forecasts.items()):
    of_kind = histories[place * SEEDS : (place + 1) * SEEDS]
    accuracies[title] = [history.test_accuracy[-1] or 0.1 for history in of_kind]  # a guess where it diverged
    diverged = sum(history.status == "diverged" for history in of_kind)
    rows.append((title, found.verdict, ", ".join(f"{100 * one:.0f} %" for one in accuracies[title]), diverged))
    figure.add_scatter(y=of_kind[0].loss, name=title, mode="lines+markers")
figure.update_yaxes(title="training loss, first seed", range=[0, 5])
figure.update_xaxes(title="epoch")
pandas.DataFrame(rows, columns=["network", "forecast, before training", "test accuracy", "diverged"]).style.hide(
    axis="index"
)

# %%
figure.show()

# %% [markdown]
# ## What was learnt

# %%
fails = [title for title, found in forecasts.items() if not found.trains]
works = [title for title, found in forecasts.items() if found.trains and not found.near]
narrow = [title for title, found in forecasts.items() if found.trains and found.near]
reached = max((max(accuracies[title]) for title in narrow), default=0.0)
on_the_border = (
    f" Of {' and '.join(narrow)} it says so by a narrow margin, and wrongly: these have at most {100 * reached:.0f} %."
    if narrow and reached < 0.5
    else f" Of {' and '.join(narrow)} it says so by a narrow margin; these have up to {100 * reached:.0f} %."
    if narrow
    else ""
)
best = max(max(accuracies[title]) for title in fails)
worst = min(min(accuracies[title]) for title in works)
signals = {
    title: {name: 10 ** found.signals[name] for name in ("growth", "gradient_growth")}
    for title, found in forecasts.items()
}
plain_norms, skips_alone, skips_norms, small_branches = (
    signals[title] for title in ("plain, norms", "skips, no norms", "skips, norms", "skips, branches x 0.1, no norms")
)
Markdown(
    f"""
- **A layer that keeps sizes is not enough.** The plain network with norms keeps the size of its states (the last is
  {plain_norms["growth"]:.2f} times the first), yet its gradients grow {plain_norms["gradient_growth"]:,.0f} times.
- **Skips alone are not enough either.** Without norms the states grow {skips_alone["growth"]:,.0f} times, because every
  branch is as large as what it is added to.
- **Skips with small branches are.** With norms, or with a factor of 0.1, the gradients change by a factor of
  {skips_norms["gradient_growth"]:.0f} and {small_branches["gradient_growth"]:.1f}.
- The check, which trained nothing, expected {len(works)} of the {len(NAMES)} kinds to train: {" and ".join(works)}.
  After {EPOCHS} epochs the worst of these networks has {100 * worst:.0f} % of the test images right, and the best of
  those that it expects to fail {100 * best:.0f} %.{on_the_border}

Five kinds of network and {SEEDS} seeds are an example. How often the check is right on networks that it was not made
for is on its [own page](../check.md). These numbers are from a run on 2 cores of a shared server.
"""
)
