"""The claims of paper D, with the rules that decide them.

The Jacobian of a unit includes its skip and its last ReLU. Of its n singular values those in 0.99 to 1.01 are near 1,
those above 1.01 above 1. z is the number of inactive outputs, r that of active inner ReLUs. Regular units keep the size
of the state; the others down-sample. A quantity's members are the units, stages or images that its name speaks of, over
all networks, and else the networks.
"""

from __future__ import annotations

from skipscope.papers.kit.claims import Claim
from skipscope.papers.kit.criteria import Criterion
from skipscope.papers.kit.quantities import Quantity

LARGE = ("full", "paper")
GENERIC = 0.9  # share of the pairs that have to meet a bound that is met generically

CLAIMS = (
    Claim(
        "D1",
        "The Jacobian is the derivative of the unit, and its transpose is its transpose.",
        "Jacobian test (r0 and r1 against the step) and adjoint test of every unit",
        criteria=(
            Criterion(Quantity("slope of r0, smallest"), ">=", 0.9),
            Criterion(Quantity("slope of r0, largest"), "<=", 1.1),
            Criterion(Quantity("Jacobians with r1 neither of slope 1.9 nor at rounding"), "==", 0.0),
            Criterion(Quantity("largest adjoint error"), "<=", 1e-10),
        ),
        controls=(
            Criterion(Quantity("Jacobians"), ">=", 1.0),
            Criterion(Quantity("wrong Jacobian rejected"), "==", 1.0),
        ),
        note="Between ReLUs a unit is linear, and r1 drops to rounding as soon as no kink is crossed.",
    ),
    Claim(
        "D2",
        "Residual units have a plateau of singular values at 1, and most of them are there.",
        "share of singular values near 1, regular units of stages 1 and 2",
        criteria=(
            Criterion(Quantity("share near 1, regular units of stages 1-2"), ">=", 0.3),
            Criterion(Quantity("share near 1, regular units of stages 1-2"), ">", 0.5),
        ),
        seeds=3,
        presets=LARGE,
        note=(
            "The first is the plateau, the second says most. A trained ResNet-56 has the plateau (0.20 to 0.50) and "
            "not most; in small networks too many inner ReLUs are active for a plateau (D3)."
        ),
    ),
    Claim(
        "D3",
        "A unit with n outputs, z of them inactive, and r active inner ReLUs has at least z singular values 0, at "
        "least n - z - 2 r equal to 1, at most r above 1 and at most r between 0 and 1.",
        "counts against bounds, for every regular unit and every sample",
        criteria=(
            Criterion(Quantity("bounds violated"), "==", 0.0),
            Criterion(Quantity("share of generic pairs with equality"), ">=", GENERIC),
        ),
        controls=(
            Criterion(Quantity("pairs with 2 r < n - z"), ">=", 1.0),
            Criterion(Quantity("ones without skips"), "==", 0.0),
            Criterion(Quantity("trained networks"), ">=", 1.0),
        ),
        ours=True,
        note="Generic pairs of unit and sample are those with 2 r < n - z: elsewhere no value has to be exactly 1.",
    ),
    Claim(
        "D4",
        "A unit's spectrum hardly depends on the image.",
        "correlation of sorted singular values across 5 images, and their median relative spread",
        criteria=(
            Criterion(Quantity("correlation of spectra across images"), ">=", 0.95),
            Criterion(Quantity("median relative spread of spectra across images"), "<=", 0.05),
        ),
        controls=(Criterion(Quantity("correlation of spectra across images - across units"), ">", 0.0),),
        seeds=3,
        note="Sorted spectra of different units correlate too: without that baseline a high correlation says little.",
    ),
    Claim(
        "D5",
        "Down-sampling units have no plateau.",
        "share of singular values near 1, down-sampling over regular units, with projections as shortcuts",
        criteria=(
            Criterion(Quantity("share near 1, down-sampling / regular units, stage 2"), "<=", 1 / 3),
            Criterion(Quantity("share near 1, down-sampling / regular units, stage 3"), "<=", 1 / 3),
        ),
        seeds=3,
        note="Shortcuts that pad with zeros are reported besides.",
    ),
    Claim(
        "D6",
        "The Jacobian of a whole stage has no plateau, but a few huge singular values.",
        "largest over median singular value, and share near 1, of stage Jacobians",
        criteria=(
            Criterion(Quantity("largest / median singular value of a stage"), ">=", 10.0),
            Criterion(Quantity("share near 1 of a stage"), "<=", 0.02),
        ),
        seeds=3,
    ),
    Claim(
        "D7",
        "Within a stage, fewer singular values are above 1 the deeper the unit.",
        "rank correlation of unit and share above 1, in each stage",
        criteria=(
            Criterion(Quantity("Spearman of unit and share above 1, stage 1"), "<=", -0.3),
            Criterion(Quantity("Spearman of unit and share above 1, stage 2"), "<=", -0.3),
            Criterion(Quantity("Spearman of unit and share above 1, stage 3"), "<=", -0.3),
        ),
        seeds=3,
        presets=LARGE,
    ),
    Claim(
        "D8",
        "The share of singular values near 1 rises with depth in stages 1 and 2 and falls in stage 3.",
        "slope of the share near 1 over the units of each stage",
        criteria=(
            Criterion(Quantity("slope of share near 1 over units, stage 1"), ">", 0.0),
            Criterion(Quantity("slope of share near 1 over units, stage 2"), ">", 0.0),
            Criterion(Quantity("slope of share near 1 over units, stage 3"), "<", 0.0),
        ),
        seeds=3,
        presets=LARGE,
    ),
    Claim(
        "D9",
        "The share of singular values 0 falls with depth in stages 1 and 2 and rises in stage 3.",
        "slope of the share of zeros over the units of each stage",
        criteria=(
            Criterion(Quantity("slope of share of zeros over units, stage 1"), "<", 0.0),
            Criterion(Quantity("slope of share of zeros over units, stage 2"), "<", 0.0),
            Criterion(Quantity("slope of share of zeros over units, stage 3"), ">", 0.0),
        ),
        seeds=3,
        presets=LARGE,
    ),
    Claim(
        "D10",
        "Perturbations grow through stages 1 and 2, adversarial ones faster than random ones.",
        "median over images of the growth of a perturbation's RMS through a stage",
        criteria=(
            Criterion(Quantity("median growth of random perturbations, stage 1"), ">", 1.0),
            Criterion(Quantity("median growth of random perturbations, stage 2"), ">", 1.0),
            Criterion(Quantity("median growth, adversarial / random, stage 1"), ">", 1.0),
            Criterion(Quantity("median growth, adversarial / random, stage 2"), ">", 1.0),
        ),
        seeds=3,
    ),
    Claim(
        "D11",
        "Stage 3 shrinks random perturbations.",
        "RMS of the perturbation at the end of stage 3 over that at its start",
        criteria=(Criterion(Quantity("RMS of random perturbations, end / start of stage 3"), "<", 1.0),),
        seeds=3,
        presets=LARGE,
        note="They grew 1.75 times in a small network and 1.3 times in a trained ResNet-56.",
    ),
    Claim(
        "D12",
        "Adversarial perturbations jump at the end of stage 3.",
        "growth over the last three units",
        criteria=(
            Criterion(Quantity("growth of adversarial perturbations over the last 3 units"), ">=", 2.0),
            Criterion(Quantity("growth over the last 3 units, adversarial / random"), ">=", 1.5),
        ),
        seeds=3,
        presets=LARGE,
    ),
    Claim(
        "D13",
        "The linearisation predicts how perturbations grow.",
        "predicted over actual growth, unit by unit",
        criteria=(
            Criterion(Quantity("median of predicted / actual growth"), "within", (0.9, 1.1)),
            Criterion(Quantity("correlation of predicted and actual growth"), ">=", 0.9),
        ),
        seeds=3,
    ),
    Claim(
        "D14",
        "At the last unit an adversarial perturbation turns into the leading right singular vectors.",
        "share of the perturbation's square in the top 10 right singular vectors",
        criteria=(
            Criterion(Quantity("share in the top 10 of adversarial perturbations, last / earlier units"), ">=", 3.0),
            Criterion(Quantity("share in the top 10 at the last unit, adversarial / random"), ">=", 3.0),
        ),
        seeds=3,
    ),
    Claim(
        "D15",
        "With a skip of factor alpha the plateau moves to alpha.",
        "singular values within 1e-7 of |alpha| against n - z - 2 r, where z and r depend on alpha",
        criteria=(Criterion(Quantity("pairs without exactly n - z - 2 r values at |alpha|"), "==", 0.0),),
        controls=(Criterion(Quantity("pairs with 2 r < n - z"), ">=", 1.0),),
        note=(
            "Pairs of unit and alpha with 2 r < n - z. The other singular values are not scaled by alpha; their "
            "correlation with alpha times those of the network as it is, is reported."
        ),
    ),
    Claim(
        "D17",
        "The mean singular value of a residual unit is close to 1 by its structure.",
        "mean singular value of regular units",
        criteria=(Criterion(Quantity("mean singular value, regular units"), "within", (0.9, 1.1)),),
        seeds=3,
        note="0.42 to 0.82 was seen on a trained ResNet-56: inactive outputs are zeros.",
    ),
    Claim(
        "D18",
        "Units have high rank but in stage 3 of ResNet-56; ResNet-56 and ResNet-110 are alike; the spectra of stages "
        "hardly depend on the image.",
        "rank over size; distance of the two networks' sorted spectra; spread of stage spectra across images",
        criteria=(
            Criterion(Quantity("rank / n, units of stages 1-2"), ">=", 0.75),
            Criterion(Quantity("median relative distance of spectra, ResNet-56 and ResNet-110"), "<=", 0.1),
            Criterion(Quantity("correlation of stage spectra across images"), ">=", 0.95),
            Criterion(Quantity("median relative spread of stage spectra across images"), "<=", 0.05),
        ),
        controls=(Criterion(Quantity("correlation of stage spectra across images - across stages"), ">", 0.0),),
        seeds=3,
        presets=LARGE,
    ),
)

DECIDED_BY = {
    "D1": "D.verify",
    "D2": "D.proportions",
    "D3": "D.law",
    "D4": "D.spectra",
    "D5": "D.spectra",
    "D6": "D.spectra",
    "D7": "D.proportions",
    "D8": "D.proportions",
    "D9": "D.proportions",
    "D10": "D.perturbations",
    "D11": "D.perturbations",
    "D12": "D.perturbations",
    "D13": "D.perturbations",
    "D14": "D.projections",
    "D15": "D.scaling",
    "D17": "D.spectra",
    "D18": "D.spectra",
}


def decided_by(study: str) -> tuple[Claim, ...]:
    return tuple(claim for claim in CLAIMS if DECIDED_BY[claim.id] == study)
