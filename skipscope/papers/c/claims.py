"""The claims of paper C, with the rules that decide them.

PlainNet, ResNet and ResNeXt are the same network without skips, with them, and with several paths a branch. cond is a
condition number, of a weight or of the hidden states of a batch; numerically infinite at 1 / (eps times the largest
dimension) or above. Quantities that span orders of magnitude are logarithms, so that a mean means something. Of trained
networks a quantity has one value a seed.
"""

from __future__ import annotations

from skipscope.papers.kit.claims import Claim
from skipscope.papers.kit.criteria import Criterion
from skipscope.papers.kit.quantities import Quantity

LARGE = ("full", "paper")

CLAIMS = (
    Claim(
        "C1",
        "A very deep PlainNet does not train.",
        "train accuracy at the best learning rate of a grid",
        criteria=(Criterion(Quantity("train accuracy, PlainNet"), "<=", 0.35),),
        controls=(Criterion(Quantity("train accuracy, ResNet"), ">=", 0.95),),
        seeds=3,
    ),
    Claim(
        "C2",
        "ResNeXt is better than ResNet.",
        "difference of test accuracies, seed by seed",
        criteria=(Criterion(Quantity("test accuracy, ResNeXt - ResNet"), ">", 0.0),),
        seeds=3,
        presets=LARGE,
        note="The paper has 0.14 to 1.16 points: too little for small networks to show.",
    ),
    Claim(
        "C3",
        "The weights of PlainNet are worse conditioned.",
        "median log10 cond over layers, same shapes and same reduction",
        criteria=(Criterion(Quantity("median log10 cond of weights, PlainNet - ResNet"), ">=", 0.5),),
        seeds=3,
    ),
    Claim(
        "C4",
        "The condition number of PlainNet's weights grows with depth.",
        "rank correlation of layer and cond of its weight",
        criteria=(Criterion(Quantity("Spearman of layer and cond of weights, PlainNet"), ">=", 0.5),),
        controls=(Criterion(Quantity("|Spearman of layer and cond of weights|, ResNet"), "<", 0.3),),
        seeds=3,
    ),
    Claim(
        "C5",
        "The hidden states of PlainNet are singular in its early layers.",
        "layers whose hidden states have a unit that is zero for the whole batch, or a smallest singular value of 0",
        criteria=(Criterion(Quantity("share of layers with infinite cond of hidden states, PlainNet"), ">=", 0.3),),
        controls=(
            Criterion(Quantity("layers after the first with infinite cond of hidden states, ResNet"), "==", 0.0),
        ),
        seeds=3,
        note=(
            "Where these layers are is reported. In small networks it comes from units that die during training, "
            "not from depth as in the paper's theory; and the figures (infinite early, finite late) have the "
            "opposite order to that theory."
        ),
    ),
    Claim(
        "C6",
        "The condition number of ResNet's hidden states is high early and then falls.",
        "cond of hidden states at layer 1 over the median of the other layers",
        criteria=(Criterion(Quantity("log10 cond of hidden states, layer 1 / median of the rest, ResNet"), ">=", 2.0),),
        seeds=3,
    ),
    Claim(
        "C7",
        "With linear units the same order holds.",
        "cond of PlainNet's first hidden states; cond of hidden states at the last block; cond of weights",
        criteria=(
            Criterion(Quantity("log10 cond / numerical infinity, first hidden states, PlainNet"), ">=", 0.0),
            Criterion(Quantity("log10 cond of hidden states at the last block, PlainNet / ResNet"), ">=", 3.0),
            Criterion(Quantity("median log10 cond of weights, PlainNet - ResNet"), ">", 0.0),
        ),
        seeds=3,
        note="A small network shows the hidden states' ratio, and the weights in the other order.",
    ),
    Claim(
        "C8",
        "Activations, weights and gradients of PlainNet blow up at layer 1 and are moderate at the last layer but one, "
        "with ReLUs and with linear units.",
        "99th percentile of absolute values, PlainNet over ResNet",
        criteria=tuple(
            criterion
            for units in ("ReLU", "linear")
            for what in ("activations", "weights", "gradients")
            for criterion in (
                Criterion(Quantity(f"log10 p99 of {what}, PlainNet / ResNet, layer 1, {units}"), ">=", 2.0),
                Criterion(
                    Quantity(f"log10 p99 of {what}, PlainNet / ResNet, last layer but one, {units}"),
                    "within",
                    (-1.0, 1.0),
                ),
            )
        ),
        seeds=3,
        note="The paper does not say whether its networks have batch normalisation: measured with and without it.",
    ),
    Claim(
        "C9",
        "Theorem 1: a deep product of commuting weights collapses onto one direction.",
        "cosine of the last state and the common leading eigenvector, 60 layers",
        criteria=(Criterion(Quantity("cosine of last state and leading eigenvector"), ">=", 0.999),),
        controls=(Criterion(Quantity("largest eigenvalue ratio"), "<=", 0.8),),
        note="It takes commuting symmetric weights with the same leading direction in every layer.",
    ),
    Claim(
        "C10",
        "Theorem 2: a residual network's last state is close to approximation 16.",
        "relative error of the approximation in generic cases",
        criteria=(Criterion(Quantity("relative error of approximation 16"), "<=", 0.1),),
        note=(
            "A member is a case; the error is relative to the longer of state and approximation. The exact sum before "
            "it holds; the approximation only where the residual network itself collapses or does nothing."
        ),
    ),
    Claim(
        "C11",
        "Skips keep the states of a deep linear network with random weights well conditioned.",
        "log10 cond of the product of I + s W2 W1 against the branch's scale s",
        criteria=(Criterion(Quantity("log10 cond / numerical infinity, He scale"), "<", 0.0),),
        controls=(
            Criterion(Quantity("log10 cond / numerical infinity, without skips"), ">=", 0.0),
            Criterion(Quantity("log10 cond / numerical infinity, a tenth of He scale"), "<", 0.0),
        ),
        note=(
            "True for small branches only: with 110 units at He scale cond is about 1e100 with skips, 1e200 without; "
            "float64 computes about 1e18 for both."
        ),
    ),
    Claim(
        "C12",
        "Proposition 3: the condition number of the inputs bounds how errors in them move the weights.",
        "|dW| / |W| over cond(X) |dX| / |X|, to first order",
        criteria=(Criterion(Quantity("largest of left / right side / (1 + 10 cond eps)"), "<=", 1.0),),
        note="A statement about least squares, not about the generalisation of trained networks.",
    ),
    Claim(
        "C13",
        "Proposition 1: random weights are almost never singular.",
        "smallest singular value of 1000 draws",
        criteria=(Criterion(Quantity("singular draws"), "==", 0.0),),
        controls=(Criterion(Quantity("draws"), ">=", 1000.0),),
    ),
    Claim(
        "C14",
        "Better conditioned networks generalise better.",
        "rank correlation of cond of hidden states with test minus train accuracy, across fully trained networks",
        criteria=(Criterion(Quantity("Spearman of cond of hidden states and test - train accuracy"), "<=", -0.5),),
        controls=(
            Criterion(Quantity("networks"), ">=", 10.0),
            Criterion(Quantity("smallest train accuracy"), ">=", 0.99),
        ),
        note="The paper gives no test of it. Networks below a train accuracy of 0.99 are left out: the second control.",
    ),
    Claim(
        "C15",
        "Gradients are singular in PlainNet and not in residual networks.",
        "rank over full rank of back-propagated errors and of weight gradients, median over layers",
        criteria=tuple(
            criterion
            for what in ("errors", "weight gradients")
            for when in ("at initialisation", "early in training")
            for criterion in (
                Criterion(Quantity(f"rank share of {what} {when}, PlainNet"), "<=", 0.5),
                Criterion(Quantity(f"rank share of {what} {when}, ResNet"), ">=", 0.9),
            )
        ),
        seeds=3,
    ),
    Claim(
        "C16",
        "A PlainNet whose weights have nearly equal singular values trains.",
        "train accuracy from orthogonal and from He weights",
        criteria=(Criterion(Quantity("train accuracy, PlainNet, orthogonal weights"), ">=", 0.9),),
        controls=(Criterion(Quantity("train accuracy, PlainNet, He weights"), "<=", 0.35),),
        seeds=3,
        note="Weights that are regularised towards equal singular values are reported besides.",
    ),
    Claim(
        "C17",
        "A DiracNet drifts from its identity and does worse than ResNet.",
        "drift of the identity's factor from 1, distance of last state and input, accuracy, with intervals",
        criteria=(),
        seeds=3,
        note=(
            "the paper takes the Dirac part for an initialisation, in a DiracNet it is there throughout training; both "
            "parametrisations are shown"
        ),
    ),
)

DECIDED_BY = {
    "C1": "C.accuracy",
    "C2": "C.accuracy",
    "C3": "C.weights",
    "C4": "C.weights",
    "C5": "C.hidden",
    "C6": "C.hidden",
    "C7": "C.linear",
    "C8": "C.histograms",
    "C9": "C.theorems",
    "C10": "C.theorems",
    "C11": "C.theorems",
    "C12": "C.theorems",
    "C13": "C.theorems",
    "C14": "C.accuracy",
    "C15": "C.histograms",
    "C16": "C.theorems",
    "C17": "C.dirac",
}


def decided_by(study: str) -> tuple[Claim, ...]:
    return tuple(claim for claim in CLAIMS if DECIDED_BY[claim.id] == study)
