"""The claims of paper A, with the rules that decide them.

RA1 to RA4 are the paper's four properties. J_i is the Jacobian of the branch of block i, masked by the block's last
ReLU; s_k, u_k and v_k are its singular values and vectors; C is the number of classes. m_K(J_i; J_j) says how far U_j^T
J_i V_j is from the diagonal of J_i's K leading singular values; chance is its value after random rotations of the same
spectra. LSS is the length of a line of unit steps over the distance it covers: 1 if straight. Unless a name says
otherwise a quantity has one value a seed, the mean over at least 10 training samples, of a trained network with skips.
"""

from __future__ import annotations

from skipscope.papers.kit.claims import Claim
from skipscope.papers.kit.criteria import TWO_THIRDS, Criterion
from skipscope.papers.kit.quantities import Quantity

CLAIMS = (
    Claim(
        "A1",
        "RA1: the states of one input, from block to block, lie on a straight line.",
        "line shape score (LSS) of the states, trained and at initialisation",
        criteria=(Criterion(Quantity("LSS"), "<=", 1.15),),
        controls=(Criterion(Quantity("LSS at initialisation"), ">=", 2.5),),
        seeds=3,
        note="Seen with weight decay; without it LSS stays above 3 (A16).",
    ),
    Claim(
        "A2",
        "RA1: the states of one input are equally spaced.",
        "standard deviation over mean of the step lengths (step CoV)",
        criteria=(Criterion(Quantity("step CoV"), "<=", 0.25),),
        controls=(Criterion(Quantity("step CoV at initialisation"), ">=", 0.8),),
        seeds=3,
        note="One of three seeds passed when the threshold was set (0.21, 0.27, 0.28); it was left as it was.",
    ),
    Claim(
        "A3",
        "RA2: the singular vectors of one block's Jacobian diagonalise those of the others.",
        "mean m_K of U_j^T J_i V_j with K = C, over its chance level; neighbouring blocks and all pairs",
        criteria=(
            Criterion(Quantity("m_K adjacent / chance"), "<=", 0.62),
            Criterion(Quantity("m_K all pairs / chance"), "<=", 0.77),
        ),
        controls=(Criterion(Quantity("m_K all pairs at initialisation / chance"), ">=", 0.97),),
        seeds=3,
        note="Chance is about 0.97 for 64 dimensions and K = 10 and rises with K / N: choose a width of at least 5 K.",
    ),
    Claim(
        "A4",
        "RA2: left and right singular vectors are interchangeable.",
        "mean m_K of V_j^T J_i U_j over all pairs; mean u_1 . v_1 with its sign",
        criteria=(
            Criterion(Quantity("m_K(VJU)"), "<=", 0.9),
            Criterion(Quantity("u_1 . v_1"), ">=", 0.3),
            Criterion(Quantity("m_K(VJU)"), "<=", 0.6),
            Criterion(Quantity("u_1 . v_1"), ">=", 0.8),
        ),
        seeds=3,
        note="The first two are the weak form, the last two the strong one. Only the weak form was seen so far.",
    ),
    Claim(
        "A5",
        "RA3: in a fully connected network the Jacobian of a branch has no more than C singular values that count.",
        "share of the squared singular values in the first C; s_(C+1) / s_1",
        criteria=(
            Criterion(Quantity("energy in the first C"), ">=", 0.99),
            Criterion(Quantity("s_(C+1) / s_1"), "<=", 0.05),
        ),
        controls=(
            Criterion(Quantity("energy in the first C at initialisation"), "<=", 0.8),
            Criterion(Quantity("width / C"), ">=", 5.0, exact=True),
        ),
        seeds=3,
    ),
    Claim(
        "A6",
        "RA3 is not claimed for convolutional networks.",
        "share of the squared singular values in the first C and s_(C+1) / s_1 of a convolutional network (type 2)",
        criteria=(),
        seeds=3,
        note="the paper makes no claim here, the numbers stand beside those of A5",
    ),
    Claim(
        "A7",
        "RA4: the leading singular value falls like one over depth.",
        "line through 1 / s_1 (s_1 averaged over samples) against the block, without the first quarter of the blocks",
        criteria=(
            Criterion(Quantity("R2 of 1 / s_1 over depth"), ">=", 0.9),
            Criterion(Quantity("slope of 1 / s_1 over depth"), "within", (0.5, 2.0)),
        ),
        seeds=3,
        note="Fits of single samples are poor (R2 0.56 to 0.69). Equal steps need a slope of exactly 1 (theorem 3.1).",
    ),
    Claim(
        "A8",
        "Without skips there is no alignment, at the same training accuracy.",
        "A3, A5 and A7 with and without skips, at the same learning rate, weight decay and number of steps",
        criteria=(
            Criterion(Quantity("A3 fails without skips"), ">=", TWO_THIRDS),
            Criterion(Quantity("A5 fails without skips"), ">=", TWO_THIRDS),
            Criterion(Quantity("A7 fails without skips"), ">=", TWO_THIRDS),
        ),
        controls=(
            Criterion(Quantity("A3 holds with skips"), ">=", TWO_THIRDS),
            Criterion(Quantity("A5 holds with skips"), ">=", TWO_THIRDS),
            Criterion(Quantity("A7 holds with skips"), ">=", TWO_THIRDS),
            Criterion(Quantity("train accuracy with skips"), ">=", 0.99, exact=True),
            Criterion(Quantity("train accuracy without skips"), ">=", 0.99, exact=True),
        ),
        seeds=3,
        presets=("full", "paper"),  # training without skips takes more epochs than quick gives any change
        note=(
            "Open. A network without skips needs a small learning rate, at which one with skips may not align either: "
            "then the test says nothing. LSS compares only with its own initialisation (12 to 14 without skips)."
        ),
    ),
    Claim(
        "A9",
        "The number of large singular values follows the number of classes.",
        "number of s_k above 0.05 s_1 for C = 2, 3, 5, 7, 10",
        criteria=(
            Criterion(Quantity("Spearman of large singular values and C"), ">=", 0.9),
            Criterion(Quantity("large singular values / C, largest"), "<=", 1.0),
        ),
        seeds=1,
        note="One network for each number of classes at the preset quick, three at full.",
    ),
    Claim(
        "A10",
        "Alignment appears across depths and widths.",
        "A1, A3, A5 and A7 at every depth and width",
        criteria=(
            Criterion(Quantity("A1 holds at this depth and width"), "==", 1.0, exact=True),
            Criterion(Quantity("A3 holds at this depth and width"), "==", 1.0, exact=True),
            Criterion(Quantity("A5 holds at this depth and width"), "==", 1.0, exact=True),
            Criterion(Quantity("A7 holds at this depth and width"), "==", 1.0, exact=True),
        ),
        seeds=3,
        presets=("full", "paper"),
        note=(
            "A member is a depth and width, judged over its seeds. A width of 32 is 3.2 times the classes, less than "
            "the 5 that A3 and A5 ask for on their own."
        ),
    ),
    Claim(
        "A11",
        "Stochastic depth modulates alignment.",
        "change of LSS and of m_K with the probability of dropping a block (0, 0.2, 0.5), with intervals",
        criteria=(),
        seeds=3,
        presets=("full", "paper"),
        note="the direction is in nothing that could be read, so the sign is given with its interval",
    ),
    Claim(
        "A12",
        "Alignment comes together with neural collapse.",
        "NC1 of the last layer and m_K across epochs",
        criteria=(
            Criterion(Quantity("NC1, last / first epoch"), "<", 1.0),
            Criterion(Quantity("m_K, last / first epoch"), "<", 1.0),
            Criterion(Quantity("Spearman of NC1 and m_K over epochs"), ">=", 0.7),
        ),
        seeds=3,
    ),
    Claim(
        "A13",
        "Only networks that generalise align.",
        "1 - m_K / chance and LSS - 1, trained on random labels over trained on true labels",
        criteria=(
            Criterion(Quantity("1 - m_K / chance, random / true labels"), "<=", 0.5),
            Criterion(Quantity("LSS - 1, random / true labels"), ">=", 2.0),
        ),
        controls=(
            Criterion(Quantity("m_K all pairs / chance, true labels"), "<=", 0.77),  # else there is nothing to lose
            Criterion(Quantity("train accuracy with true labels"), ">=", 0.99, exact=True),
            Criterion(Quantity("train accuracy with random labels"), ">=", 0.99, exact=True),
        ),
        seeds=3,
        presets=("full", "paper"),
    ),
    Claim(
        "A14",
        "Theorem 3.1: aligned rank-one Jacobians with s_i = 1 / i give equally spaced states on a line.",
        "recursion against h_k = (I - u u^T) h_1 + k u u^T h_1, and against the printed k u u^T h_1",
        criteria=(
            Criterion(Quantity("error of the corrected formula"), "<=", 1e-10),
            Criterion(Quantity("error of the printed formula, h_1 parallel to u"), "<=", 1e-10),
        ),
        controls=(Criterion(Quantity("error of the printed formula, any h_1"), ">", 1e-10),),
        note=(
            "Erratum: the printed formula drops the part of h_1 orthogonal to u; the conclusion survives. Steps are "
            "constant if and only if 1 / s_i is affine in i with slope 1."
        ),
    ),
    Claim(
        "A15",
        "Theorem 3.3: the optimum of the unconstrained Jacobians model has equal, aligned, rank-one Jacobians.",
        "minimiser from random starts against the scalar reduction, and the structure of its Jacobians",
        criteria=(
            Criterion(Quantity("objective - scalar optimum"), "<=", 1e-4),
            Criterion(Quantity("CoV of s_1 over blocks"), "<=", 1e-4),
            Criterion(Quantity("s_2 / s_1"), "<=", 1e-4),
            Criterion(Quantity("1 - u . v"), "<=", 1e-4),
            Criterion(Quantity("1 - |u . delta|"), "<=", 1e-4),
            Criterion(Quantity("1 - cos(w, delta)"), "<=", 1e-4),
            Criterion(Quantity("| |w|^2 - s (1 + s) |"), "<=", 1e-4),
        ),
        note=(
            "Each quantity is the worst over depths and regularisations. Equal s_i let states grow exponentially: "
            "analogous to RA4's 1 / i, not the same."
        ),
    ),
    Claim(
        "A16",
        "Weight decay is necessary for straight trajectories.",
        "LSS of networks that differ in weight decay alone (0 and 5e-3)",
        criteria=(Criterion(Quantity("LSS without weight decay"), ">=", 3.0),),
        controls=(Criterion(Quantity("LSS with weight decay"), "<=", 1.15),),
        seeds=3,
        ours=True,
        note="Seen on MNIST with fully connected networks only.",
    ),
    Claim(
        "A17",
        "The trace inequality behind theorem 3.3, and the linearised logit that motivates its model.",
        "supremum of the trace over rotations, by optimisation, against the formula; logit against its linearisation",
        criteria=(Criterion(Quantity("|supremum over rotations - formula|"), "<=", 1e-8),),
        note="The relative error of the linearised logit at a boundary point of a trained network is reported besides.",
    ),
)

DECIDED_BY = {
    "A1": "A.alignment",
    "A2": "A.alignment",
    "A3": "A.alignment",
    "A4": "A.alignment",
    "A5": "A.alignment",
    "A6": "A.alignment",
    "A7": "A.alignment",
    "A8": "A.counterfactuals",
    "A9": "A.counterfactuals",
    "A10": "A.counterfactuals",
    "A11": "A.counterfactuals",
    "A12": "A.collapse",
    "A13": "A.counterfactuals",
    "A14": "A.theorem31",
    "A15": "A.theorem33",
    "A16": "A.counterfactuals",
    "A17": "A.theorem33",
}


def decided_by(study: str) -> tuple[Claim, ...]:
    return tuple(claim for claim in CLAIMS if DECIDED_BY[claim.id] == study)
