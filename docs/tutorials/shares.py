# %% [markdown]
# # Singular values, unit by unit: figure 2 of paper D in five minutes
#
# Paper D (Rothauge, Yao, Hu and Mahoney) asks what a residual unit does to small changes of its state. Its figure 2
# gives the answer as shares: how many of the singular values of the unit's Jacobian are above 1 (directions that
# grow), near 1 (that are left alone), below 1 (that shrink) and zero (that are lost). Here we make that figure for a
# small network that is trained on the spot, set it beside ResNet-56, and find out where two of the four shares come
# from. Nothing is downloaded.

# %%
from pathlib import Path

import torch
import xarray
from IPython.display import Markdown

import skipscope as ss
from skipscope.data import digits
from skipscope.training import Settings, train

EPOCHS = 10
IMAGES = 5
STORED = Path("docs/results/D/population/resnet56-spectra.nc")  # in a checkout

# %% [markdown]
# ## A network to look at
#
# A ResNet of 20 layers with 8, 16 and 32 channels, on 8 x 8 images of digits.

# %%
data = digits()
torch.manual_seed(0)
network = ss.build("resnet20-digits-n2")
history = train(network, data.train, Settings(EPOCHS, rate=0.1), test=data.test)
print(f"{100 * history.test_accuracy[-1]:.1f} % of the test images are right")

# %% [markdown]
# ## The figure
#
# `ss.spectra` assembles the Jacobian of every unit at every image and computes all of its singular values, each with
# a bound on its error. `ss.plot.proportions` draws the shares.

# %%
x = data.test_batch(IMAGES)
trunk = ss.trace(network.eval(), x)
spectra = ss.spectra(trunk, x, stages=False, route="svd")  # a route that knows nothing of the law below
print(f"largest error of a singular value: {float(spectra['bound'].max()):.0e}")
ss.plot.proportions(spectra)

# %% [markdown]
# A third of the directions of every unit are lost, and very few are left alone. Now the same for ResNet-56 on
# CIFAR-10: five networks, two images, 27 units with states of up to 16,384 numbers. On 2 cores that takes hours, so
# the shares are stored in the repository (they were measured on one NVIDIA H200, in about two minutes per network).

# %%
stored = xarray.open_dataset(STORED).load()
large = stored.sel(unit=stored["kind"] == "unit").mean("network", keep_attrs=True)
ss.plot.proportions(large)

# %% [markdown]
# This is the picture of the paper: along every stage the share near 1 grows, to about a half at its end.
#
# ## Where the zeros come from
#
# A unit ends in a ReLU after the sum. Where that is shut off, a row of the Jacobian is zero. `ss.law` counts these
# rows, and the entries inside the branch that are shut off too; with `count_only=True` it decomposes nothing, so
# that all test images take seconds.

# %%
counts = ss.law(trunk, data.test.images(), count_only=True)
same = (spectra["zeros"] == spectra["zeros_at_least"]).mean().item()
print(
    f"in {100 * same:.0f} % of the units and images, the zero singular values are exactly the outputs that are shut off"
)
(counts["zeros_at_least"] / counts["size"]).mean("sample").to_series().round(3).rename(
    "share that is proved to be zero"
)

# %% [markdown]
# ## Where the ones come from
#
# Let e be the active outputs that the skip reaches, and r the active entries inside the branch. The branch can
# change at most r directions at the entry and r at the exit, so at least e - 2 r singular values are exactly 1,
# whatever the weights are. The small network has too many active entries for that:

# %%
active = (counts["inner_active"] / counts["carried"]).mean("sample")
active.to_series().round(2).rename("r / e: below 0.5 a plateau at 1 is certain")

# %% [markdown]
# ResNet-56 is wide enough. Here is the share of its singular values that are near 1, and the share that the count
# proves to be exactly 1:

# %%
units = stored.sel(unit=stored["kind"] == "unit")
ones = xarray.Dataset({"near 1": units["share_near_one"], "proved": units["ones_proved"] / units["size"]})
ones = ones.mean(["network", "sample"])
ones.to_dataframe()[["near 1", "proved"]].round(3)

# %% [markdown]
# ## What was learnt

# %%
near, proved = ones["near 1"], ones["proved"]


def percent(share):
    return f"{100 * float(share):.0f} %"


Markdown(
    f"""
- **Lost directions are ReLUs that are off.** In {percent(same)} of the {spectra["zeros"].size} Jacobians of the small
  network the zeros are as many as the outputs that are shut off: {percent(spectra["share_zero"].mean())} of all
  directions.
- **Most directions that are left alone are left alone exactly.** In ResNet-56 the share near 1 grows from
  {percent(near.sel(unit="stage1.0"))} at the first unit to {percent(near.sel(unit="stage1.8"))} at the end of the first
  stage, and {percent(proved.sel(unit="stage1.8"))} are proved to be exactly 1 there. Weighing units equally, at least
  {percent(proved.sum() / near.sum())} of the values near 1 are exactly 1. The end of the third stage is different:
  {percent(near.sel(unit="stage3.8"))} are near 1 and {percent(proved.sel(unit="stage3.8"))} are proved to be 1.
- **Counting is enough to know it.** The bound e - 2 r costs a forward pass. A small network on digits has no plateau,
  because r is {float(active.mean()):.2f} of e: too many entries of its branches are active.

The small network was trained and measured on 2 cores of a shared server. [The law](../measures/law.md) has the theorem,
its proof and how it was tested; [the results of paper D](../results/D/README.md) have all numbers.
"""
)
