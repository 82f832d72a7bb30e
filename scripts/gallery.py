"""The gallery of the documentation: every figure of `ss.plot`, and the code that makes it.

    python scripts/gallery.py                # all
    python scripts/gallery.py scree depth    # some, and those before them that their code builds on

Runs the code below, in the root of a checkout and in this order, and writes docs/gallery/NAME.png and docs/gallery.md.
The page shows the code as it was run. Needs the extra `export` (kaleido, and Chromium). Some minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
WIDTH = 900  # of a picture, in pixels
THUMBNAIL = 210

INTRODUCTION = """\
# Gallery

Every figure of `ss.plot`. Click one for the code that makes it. A figure is a Plotly figure: `figure.show()` opens it,
`ss.plot.save(figure, "name.png")` writes it. The pictures were made by `scripts/gallery.py` from the code on this page,
from one small network that is trained first, and from datasets of the papers' studies that are in the repository.
"""

BEFORE = """\
import torch
import xarray

import skipscope as ss
from skipscope.data import digits, fgsm, uniform_like
from skipscope.training import At, Settings, Tracker, distributions, train

data = digits()
torch.manual_seed(0)
network = ss.build("resnet20-digits-n4")
tracker = At(range(5), Tracker(["stage1.0.conv1", "stage3.2.conv1"], data.train), name="layers")
history = train(network, data.train, Settings(epochs=4, rate=0.1), test=data.test, hooks=[tracker])

x, labels = data.test_examples(4)
trunk = ss.trace(network.eval(), x)
"""


class Entry(NamedTuple):
    name: str  # of the function in ss.plot
    about: str
    code: str  # leaves a `figure`


def stored(path: str) -> str:
    return f'xarray.load_dataset("docs/results/{path}.nc")'


SECTIONS: dict[str, list[Entry]] = {
    "Spectra": [
        Entry(
            "scree",
            "Singular values in descending order, one panel per unit, one curve per image.",
            "spectra = ss.spectra(trunk, x)\n"
            'figure = ss.plot.scree(spectra, units=["stage1.0", "stage2.1", "stage3.2"])',
        ),
        Entry("proportions", "Shares above 1, near 1, below 1 and zero.", "figure = ss.plot.proportions(spectra)"),
        Entry("depth", "The largest singular values against depth.", "figure = ss.plot.depth(spectra)"),
        Entry(
            "law",
            "Counted ones against proved ones.",
            "counted = " + stored("second-edition/D/data/law-random-0") + "  # of ss.law(trunk, x)\n"
            "figure = ss.plot.law(counted)",
        ),
    ],
    "Sizes and perturbations": [
        Entry(
            "profile",
            "Sizes of states and gradients, branch against skip, unit by unit.",
            "images = data.test_batch(32)\nfigure = ss.plot.profile(ss.profile(trunk, images))",
        ),
        Entry(
            "growth",
            "How a perturbation of the input grows on its way through the network.",
            "found = fgsm(network, *data.test_examples(40))\n"
            "flipped, adversarial = found.images[:4], found.perturbation[:4]\n"
            'kinds = {"adversarial": adversarial, "random": uniform_like(adversarial, seed=0)}\n'
            'stability = ss.stability(trunk, flipped, perturbation=kinds, project=["stage3.2"])\n'
            "figure = ss.plot.growth(stability)",
        ),
        Entry(
            "prediction",
            "The growth that Jacobians predict against the actual one.",
            "figure = ss.plot.prediction(stability)",
        ),
        Entry(
            "projections", "Perturbations in the singular vectors of a unit.", "figure = ss.plot.projections(stability)"
        ),
    ],
    "Alignment and paths": [
        Entry(
            "alignment",
            "The Jacobian of each unit in the singular vectors of the others.",
            'same_shape = ["stage1.0", "stage1.1", "stage1.2"]\n'
            "alignment = ss.alignment(trunk, x, k=10, units=same_shape)\n"
            "figure = ss.plot.alignment(alignment)",
        ),
        Entry(
            "coupling",
            "How far each pair of units is from sharing singular vectors.",
            "figure = ss.plot.coupling(alignment)",
        ),
        Entry(
            "decay",
            "The largest singular value against depth.",
            "everywhere = ss.alignment(trunk, x, k=3)\nfigure = ss.plot.decay(everywhere)",
        ),
        Entry("energy", "The share of the leading singular values.", "figure = ss.plot.energy(everywhere)"),
        Entry(
            "trajectories",
            "Paths of samples in two planes.",
            "images, classes = data.test_examples(30)\n"
            "paths = ss.trajectories(trunk, images, labels=classes)\n"
            "figure = ss.plot.trajectories(paths)",
        ),
        Entry("steps", "Lengths of steps and angles between them.", "figure = ss.plot.steps(paths)"),
        Entry("straightness", "How straight the paths are.", "figure = ss.plot.straightness(paths)"),
        Entry(
            "collapse", "Neural collapse against depth.", "figure = ss.plot.collapse(ss.collapse(network, data.test))"
        ),
    ],
    "Conditioning and curvature": [
        Entry(
            "conditioning",
            "Condition numbers of weights and states, layer by layer.",
            "conditioning = ss.conditioning(network, data.test_batch(64), targets=data.test_examples(64)[1])\n"
            "figure = ss.plot.conditioning(conditioning)",
        ),
        Entry("gradient_ranks", "Ranks of errors and gradients.", "figure = ss.plot.gradient_ranks(conditioning)"),
        Entry(
            "hessian",
            "Eigenvalues of the Hessian of the loss.",
            "batch = data.train.images()[:64], data.train.labels[:64]\n"
            'curvature = ss.curvature(network, torch.nn.functional.cross_entropy, batch, params=["stage3.2"], k=5)\n'
            "figure = ss.plot.hessian(curvature)",
        ),
        Entry(
            "streams",
            "How a network of several residual streams mixes them.",
            "class TwoStreams(torch.nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.mix = torch.nn.Parameter(torch.eye(2) + 0.2 * torch.rand(2, 2))\n"
            "        layers = torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)\n"
            "        self.branch = torch.nn.Sequential(*layers)\n\n"
            "    def forward(self, h):\n"
            "        return self.mix @ h + self.branch(h.mean(-2))[..., None, :]\n\n\n"
            "mixing = torch.nn.Sequential(*(TwoStreams() for _ in range(8)))\n"
            "states = torch.randn(4, 2, 8)\n"
            "figure = ss.plot.streams(ss.streams(ss.trace(mixing, states), states))",
        ),
    ],
    "Training": [
        Entry("training", "Loss, learning rate and accuracies.", "figure = ss.plot.training(history.to_dataset())"),
        Entry(
            "distributions",
            "All values of a layer's activations, weights or gradients along training.",
            'figure = ss.plot.distributions(distributions(tracker.results), what="activations")',
        ),
        Entry(
            "monitored",
            "A training that was monitored: the loss, and every unit over the steps.",
            "torch.manual_seed(0)\n"
            'watched, (images, targets) = ss.build("resnet8-digits-n4"), data.test_examples(32)\n'
            "optimizer = torch.optim.SGD(watched.parameters(), lr=0.05, momentum=0.9)\n"
            'options = {"measures": ["sizes", "singular", "sharpness"], "budget": None, "optimizer": optimizer}\n'
            "monitor = ss.Monitor(watched, images, every=10, targets=targets, **options)\n"
            "for step in range(100):\n"
            "    chosen = torch.randint(len(data.train), (64,))\n"
            "    scores = watched(data.train.images(chosen))\n"
            "    loss = torch.nn.functional.cross_entropy(scores, data.train.labels[chosen])\n"
            "    optimizer.zero_grad()\n"
            "    loss.backward()\n"
            "    optimizer.step()\n"
            "    monitor.step(loss)\n"
            "figure = ss.plot.monitored(monitor.datasets)",
        ),
        Entry(
            "together",
            "Several networks on one scale: directions that units and stages lose, and the largest singular values.",
            "torch.manual_seed(0)\n"
            'fresh = ss.trace(ss.build("resnet20-digits-n4"), data.test_batch(32), calibrate=True)\n'
            "spectra = ss.spectra(trunk, x)\n"
            'figure = ss.plot.together({"before training": ss.spectra(fresh, x), "trained": spectra})',
        ),
        Entry(
            "sweep",
            "Many models, checkpoints or training steps, unit by unit.",
            'depths = {f"{depth} layers": f"skipscope:resnet{depth}-digits-n4" for depth in (8, 14, 20)}\n'
            'swept = ss.sweep(depths, data.test_batch(16), measures="profile,spectra", calibrate=True)\n'
            "figure = ss.plot.sweep(swept)",
        ),
    ],
    "Paper A": [
        Entry(
            "emergence",
            "Straightness, alignment, rank and decay along training.",
            "along = " + stored("second-edition/A.collapse/data/emergence-type1-mnist-w64-b16-35b8d05f") + "\n"
            "figure = ss.plot.emergence(along)",
        ),
        Entry(
            "counterfactuals",
            "Straightness and alignment with one thing changed.",
            'skips = "docs/results/second-edition/A.skips/data/emergence-type1-mnist-w64-b6"\n'
            'cases = {"with skips": xarray.load_dataset(f"{skips}-11e3d5b9.nc")}\n'
            'cases["without"] = xarray.load_dataset(f"{skips}-noskips-680184d0.nc")\n'
            'figure = ss.plot.counterfactuals(cases, base="with skips")',
        ),
        Entry(
            "collapse_in_training",
            "Neural collapse along training.",
            "along = " + stored("second-edition/A.collapse/data/collapse-type1-mnist-w64-b16-1000") + "\n"
            "figure = ss.plot.collapse_in_training(along)",
        ),
    ],
    "Paper C": [
        Entry(
            "twin_accuracies",
            "Accuracies with and without skips, beside the paper's.",
            "twins = " + stored("second-edition/C/data/twins-mnist-60-connected-28da82e1") + "\n"
            'figure = ss.plot.twin_accuracies({"60 layers": twins})',
        ),
        Entry(
            "twin_curves",
            "Loss and accuracies along training, with and without skips.",
            "figure = ss.plot.twin_curves(twins)",
        ),
        Entry(
            "weight_conditions",
            "Condition numbers of trained weights against the layer.",
            "conditions = " + stored("second-edition/C/data/conditions-mnist-60-connected-28da82e1") + "\n"
            "figure = ss.plot.weight_conditions(conditions)",
        ),
        Entry(
            "hidden_conditions",
            "Condition numbers and ranks of states.",
            "figure = ss.plot.hidden_conditions(conditions)",
        ),
        Entry(
            "rank_shares",
            "Ranks of errors and gradients, before training and early in it.",
            "ranks = " + stored("second-edition/C/data/histograms-ranks-mnist-60-connected-28da82e1") + "\n"
            "figure = ss.plot.rank_shares(ranks)",
        ),
        Entry(
            "generalisation",
            "Test minus train accuracy against conditioning.",
            "found = " + stored("second-edition/C.generalisation/data/generalisation") + "\n"
            "figure = ss.plot.generalisation(found)",
        ),
    ],
    "Paper D": [
        Entry(
            "plateau",
            "Singular values with a scaled skip.",
            "scaling = " + stored("second-edition/D/data/scaling-random") + "\nfigure = ss.plot.plateau(scaling)",
        ),
        Entry(
            "mixtures",
            "Weights mixed with noise.",
            "noise = " + stored("second-edition/D/data/noise-digits-0") + "\nfigure = ss.plot.mixtures(noise)",
        ),
        Entry(
            "mixture_histograms", "Their singular values, as histograms.", "figure = ss.plot.mixture_histograms(noise)"
        ),
        Entry(
            "population",
            "Means over five networks, with their range.",
            "networks = " + stored("D/population/resnet56-spectra") + "\n"
            'networks.attrs["measure"] = "population_spectra"  # as a run of D.population names it\n'
            'figure = ss.plot.population({"ResNet-56": networks})',
        ),
    ],
}


def main() -> None:
    import skipscope as ss

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of figures; all by default")
    wanted = parser.parse_args().names
    os.chdir(ROOT)
    PICTURES.mkdir(exist_ok=True)
    names: dict[str, Any] = {}
    exec(BEFORE, names)  # also where it is not needed: pictures do not depend on which others are made
    for entries in SECTIONS.values():
        for entry in entries:
            if wanted and entry.name not in wanted:
                continue
            exec(entry.code, names)
            ss.plot.save(names["figure"], PICTURES / f"{entry.name}.png", width=WIDTH, scale=1)
            print(entry.name, flush=True)
    PAGE.write_text(page(), encoding="utf-8")


def thumbnail(entry: Entry) -> str:
    picture = f'<img src="gallery/{entry.name}.png" alt="{entry.about}" width="{THUMBNAIL}">'
    return f'<a href="#{entry.name}">{picture}<span>{entry.name}</span></a>'


def page() -> str:
    grid, code = [], [f"## The code\n\nBefore everything else:\n\n```python\n{BEFORE}```"]
    for title, entries in SECTIONS.items():
        links = "\n".join(map(thumbnail, entries))
        grid.append(f'**{title}**\n\n<div class="thumbnails">\n{links}\n</div>')
        for entry in entries:
            picture = f"![{entry.about}](gallery/{entry.name}.png)"
            code.append(
                f"### {entry.name} {{ #{entry.name} }}\n\n{entry.about}\n\n```python\n{entry.code}\n```\n\n{picture}"
            )
    return "\n\n".join([textwrap.dedent(INTRODUCTION).strip(), *grid, *code]) + "\n"


if __name__ == "__main__":
    main()
