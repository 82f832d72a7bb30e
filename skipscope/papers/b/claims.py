"""The claims of paper B, with the rules that decide them.

A network of shortcut depth n has R units of n layers; its depth is n R. M is S^XX - S^YX of whitened inputs X and
targets Y. cond is the largest over the smallest absolute eigenvalue of the Hessian; log10 cond in B6, B7 and B20 takes
the 10th percentile in place of the smallest, as the paper does. "Excess loss" is the final loss minus the best that a
linear map can do. Of trained or randomly initialised networks a quantity has one value a seed, unless its note differs.
"""

from __future__ import annotations

from skipscope.papers.b.subjects import LOG_CEILING
from skipscope.papers.kit.claims import Claim
from skipscope.papers.kit.criteria import Criterion
from skipscope.papers.kit.quantities import Quantity

TUNED = Criterion(Quantity("best learning rates on the edge of their grid"), "==", 0.0)
CHOSEN = (
    "Learning rates are chosen by the seeds that are judged, as in the paper: losses are optimistic for every kind of "
    "network alike."
)

CLAIMS = (
    Claim(
        "B1",
        "With shortcuts of depth 2 and zero weights the Hessian is block diagonal, with blocks made of M alone.",
        "closed form against automatic differentiation, for several activations",
        criteria=(Criterion(Quantity("largest difference of Hessian and block form"), "<=", 1e-12),),
    ),
    Claim(
        "B2",
        "With shortcuts of depth 2 the condition number at zero is that of M, at every depth.",
        "condition number of the Hessian for R = 1 to 16",
        criteria=(
            Criterion(Quantity("relative spread of cond(H) over R"), "<=", 1e-8),
            Criterion(Quantity("relative difference of cond(H) and cond(M)"), "<=", 1e-8),
            Criterion(Quantity("cond(H) on MNIST with 10 components"), "within", (1.49065, 1.49075)),
        ),
        note=(
            "M depends on the signs of the principal components: in descending order, each with its largest entry "
            "positive, cond is 1.4907; over all signs it ranges from 1.408 to 1.634."
        ),
    ),
    Claim(
        "B3",
        "With shortcuts of depth 1 the Hessian at zero has its own closed form, and its condition number explodes.",
        "closed form against automatic differentiation; slope of log cond(H) over log R, from R = 4 to 32",
        criteria=(
            Criterion(Quantity("largest difference of Hessian and form for n = 1"), "<=", 1e-12),
            Criterion(Quantity("slope of log cond(H) over log R, n = 1"), ">=", 0.8),
        ),
    ),
    Claim(
        "B4",
        "With shortcuts of depth 3 or more zero is a stationary point of order n - 1: gradient and Hessian vanish.",
        "norm of the Hessian; slope of log |L(t u) - L(0)| over log t",
        criteria=(
            Criterion(Quantity("norm of the Hessian at zero, n >= 3"), "==", 0.0),
            Criterion(
                Quantity("slope of log |L(t u) - L(0)| over log t, minus n"), "within", (-0.05, 0.05), exact=True
            ),
        ),
        note="A member is a shortcut depth.",
    ),
    Claim(
        "B5",
        "Networks with ReLUs in the middle follow theorem 2.",
        "condition number at 0.01 Xavier weights against the formula; Hessian at exact zero",
        criteria=(),
        note=(
            "with the true ReLU, differentiation at exact zero gives a Hessian of 0, and near zero the blocks depend "
            "on the activation pattern; the paper's smoothed ReLU is consistent by construction"
        ),
    ),
    Claim(
        "B6",
        "At initialisation the condition number of 2-shortcut networks is constant in depth; that of plain networks "
        "grows, fastest with Xavier weights.",
        "log10 cond at initialisation against depth, 10 runs (figure 4)",
        criteria=(
            Criterion(Quantity("range of log10 cond over depth, 2-shortcut"), "<=", 0.05),
            Criterion(Quantity("smallest step of mean log10 cond over depth, orthogonal"), ">", 0.0),
            Criterion(Quantity("smallest step of mean log10 cond over depth, Xavier"), ">", 0.0),
            Criterion(Quantity("log10 cond at depth 16, Xavier - orthogonal"), ">=", 1.0),
        ),
        seeds=10,
        note=f"Means are over runs. Values above 1e{LOG_CEILING} are float64 noise and masked.",
    ),
    Claim(
        "B7",
        "2-shortcut networks are better conditioned at every loss on the way; orthogonal ones end up alike.",
        "log10 cond on a grid of losses, depth 16 (figure 5)",
        criteria=(
            Criterion(Quantity("largest log10 cond, 2-shortcut - others, losses above 1"), "<", 0.0),
            Criterion(Quantity("largest log10 cond, 2-shortcut - others, every loss"), "<", 0.0),
            Criterion(Quantity("|log10 cond, 2-shortcut - orthogonal| at the end"), "<=", 0.5),
        ),
        seeds=3,
        note=(
            "The second is the strong form: it failed at low losses at depth 8 (1e4.4 against 1e3.1). A 2-shortcut run "
            f"whose value is masked at a loss counts as infinitely badly conditioned there. {CHOSEN}"
        ),
    ),
    Claim(
        "B8",
        "2-shortcut networks meet points of lower index on their way.",
        "share of negative eigenvalues on a grid of losses, depth 16 (figure 6, left)",
        criteria=(Criterion(Quantity("largest index, 2-shortcut - orthogonal, on the loss grid"), "<", 0.0),),
        seeds=3,
        note=CHOSEN,
    ),
    Claim(
        "B9",
        "The index drops where the gradient peaks.",
        "epoch of the steepest drop of the index against epoch of the largest gradient (figure 6, right)",
        criteria=(Criterion(Quantity("|epoch of index drop - of gradient peak| / epochs to convergence"), "<=", 0.1),),
        seeds=3,
        note=(
            "Convergence is to 1 % of the first excess loss, which takes long, so that the criterion is lax: the same "
            "distance is given besides as a share of the epochs from 90 % to 10 % of the first excess loss."
        ),
    ),
    Claim(
        "B10",
        "Deep linear networks with 2-shortcuts still reach the optimum; plain ones with Xavier weights do not.",
        "log10 excess loss at the best learning rate of a grid, by depth (figure 7, left)",
        criteria=(
            Criterion(Quantity("largest log10 excess loss over depths, 2-shortcut"), "<=", -3.0),
            Criterion(Quantity("largest log10 excess loss from depth 16 on, 2-shortcut - orthogonal"), "<=", -0.3),
            Criterion(Quantity("log10 excess loss at depth 32, Xavier"), ">", -1.5),
        ),
        controls=(TUNED,),
        seeds=3,
        note=f"At depth 4 the 1-shortcut network was the best. {CHOSEN}",
    ),
    Claim(
        "B11",
        "2-shortcut networks take larger learning rates.",
        "best learning rate by depth (figure 7, right)",
        criteria=(
            Criterion(
                Quantity("smallest ratio of best learning rates from depth 16 on, 2-shortcut / others"), ">=", 3.0
            ),
        ),
        controls=(TUNED,),
        seeds=3,
        note=(
            "One number: a network's best rate is that of the lowest mean loss over seeds, and the ratio is the "
            "smallest over depths and architectures. Where all learning rates of a network end alike it has no best "
            "one: such pairs are left out and counted."
        ),
    ),
    Claim(
        "B12",
        "With ReLUs in the middle, 2-shortcut networks improve with depth and plain ones fail.",
        "best final loss by depth up to 64 (figure 8)",
        criteria=(
            Criterion(Quantity("largest ratio of best loss to that of the next smaller depth, 2-shortcut"), "<", 1.0),
            Criterion(Quantity("best loss at depth 64, Xavier / 2-shortcut"), ">=", 3.0),
            Criterion(Quantity("best loss at depth 64, orthogonal / 2-shortcut"), ">=", 3.0),
        ),
        controls=(TUNED,),
        seeds=3,
        presets=("full", "paper"),  # those with all samples
        note=f"300 steps on 1000 samples, as at the preset quick, are not figure 8's experiment. {CHOSEN}",
    ),
    Claim(
        "B13",
        "3-shortcut networks are harder to train than 2-shortcut ones.",
        "ratio of final losses of linear networks, learning rate tuned for each shortcut depth",
        criteria=(
            Criterion(Quantity("smallest ratio of final losses over depths, 3-shortcut / 2-shortcut"), ">=", 3.0),
        ),
        controls=(TUNED,),
        seeds=3,
        note=(
            "The best linear map of MNIST leaves a loss of 0.337, far above zero, so that final losses of networks "
            "that all come near it can never differ threefold; the ratio of excess losses, which can, is given "
            "besides. So are networks with ReLUs in the middle: unequal numbers of ReLUs do not compare. "
            f"{CHOSEN}"
        ),
    ),
    Claim(
        "B14",
        "Deeper networks end with smaller weights.",
        "slope of log mean |W|_F over log depth after training (figures 2 and 3)",
        criteria=(
            Criterion(Quantity("slope of log mean |W|_F over log depth, linear"), "<=", -0.25),
            Criterion(Quantity("slope of log mean |W|_F over log depth, ReLU-mid"), "<=", -0.25),
        ),
        seeds=3,
        note=(
            "About -0.38 was seen for both; theorem 1 says -0.5. Judged after as many steps each; the slope at equal "
            "loss and the share of the training during which norms fall with depth are reported besides."
        ),
    ),
    Claim(
        "B15",
        "Lemma 1: one unit moves one point and no other, with weights of a given norm.",
        "errors of equations 13 and 14",
        criteria=(
            Criterion(Quantity("largest error of equation 13"), "<=", 1e-12),
            Criterion(Quantity("largest error of equation 14"), "<=", 1e-12),
        ),
        note=(
            "Random points, of which the one that moves is 0.4 or more from all others: our choice, since rounding "
            "errors of a unit grow like one over the square of that distance. B16 and B18 have points that are closer."
        ),
    ),
    Claim(
        "B16",
        "Lemma 2: points can be carried to their targets on short paths that keep their distance.",
        "smallest distance of any two points on the way; length of the longest path",
        criteria=(
            Criterion(Quantity("smallest distance on the way / (rho / 2)"), ">=", 1 - 1e-9),
            Criterion(Quantity("longest path / its bound"), "<=", 1.0),
        ),
    ),
    Claim(
        "B17",
        "Theorem 1: the weights of the interpolating network shrink like one over the square root of R.",
        "largest |W|_F times the square root of R, over R",
        criteria=(Criterion(Quantity("CoV of largest |W|_F sqrt(R) over R"), "<=", 0.02),),
        controls=(Criterion(Quantity("largest R / smallest R"), ">=", 30.0),),
    ),
    Claim(
        "B18",
        "Theorem 1: the constructed network interpolates.",
        "error of every unit on exact inputs; error of the whole network in long arithmetic",
        criteria=(
            Criterion(Quantity("largest error of a unit on exact inputs"), "<=", 1e-12),
            Criterion(Quantity("error end to end in long arithmetic"), "<=", 1e-30),
        ),
        note="The composed network is unstable: float64 holds end to end for rho of 0.5 or more only.",
    ),
    Claim(
        "B19",
        "Of all shortcut depths only 2 gains from depths beyond 400.",
        "CIFAR-10 test error against depth for shortcut depths 1 to 4 (figure 9)",
        criteria=(
            Criterion(Quantity("largest step of the error over depth, shortcut 2"), "<", 0.0),
            Criterion(Quantity("smallest step of the error past depth 400, shortcut 1"), ">", 0.0),
            Criterion(Quantity("smallest step of the error past depth 400, shortcut 3"), ">", 0.0),
            Criterion(Quantity("smallest step of the error past depth 400, shortcut 4"), ">", 0.0),
        ),
        seeds=3,
        presets=("paper",),  # the only one beyond depth 400
        note="Days of one GPU. No small network stands in for depth 400.",
    ),
    Claim(
        "B20",
        "1-shortcut networks from zero train like plain ones from orthogonal weights.",
        "log10 cond at initialisation, and log10 excess loss at the best learning rate, at every depth of figures 4 "
        "and 7",
        criteria=(
            Criterion(Quantity("largest |log10 cond, 1-shortcut - orthogonal| over depths"), "<=", 0.05),
            Criterion(Quantity("largest |log10 excess loss, 1-shortcut - orthogonal| over depths"), "<=", 0.3),
        ),
        controls=(Criterion(Quantity("depths compared after training (by B.learning)"), ">=", 1.0), TUNED),
        seeds=3,
        note=(
            "The condition numbers are those of B.initial, the losses those of B.learning: both have to run, as they "
            f"do in a run of the whole paper. The losses differed by 1.5 orders at depth 4. {CHOSEN}"
        ),
    ),
    Claim(
        "B21",
        "The network of equation 3, with biases, follows theorem 2.",
        "eigenvalues of the Hessian at zero; closed form on the weights",
        criteria=(
            Criterion(Quantity("largest difference of Hessian and block form on the weights"), "<=", 1e-12),
            Criterion(Quantity("zero eigenvalues beyond those without biases, minus d R"), "==", 0.0),
        ),
        note=(
            "The block form holds on the weights. The biases add d R zero eigenvalues, so that the strict condition "
            "number is infinite: the finite one of theorem 2 is refuted with biases. tanh stands in for the ReLU of "
            "equation 3, which has no derivative at zero (see B5)."
        ),
    ),
    Claim(
        "B22",
        "States explode with depth at the usual initialisation, less so with batch normalisation, not from zero; "
        "deeper networks answer with smaller branches.",
        "slope of the log variance of states over depth; standard deviation of branch outputs of trained networks",
        criteria=(
            Criterion(Quantity("slope of log variance over depth, without BatchNorm"), ">", 0.0),
            Criterion(Quantity("slope of log variance over depth, with - without BatchNorm"), "<", 0.0),
            Criterion(Quantity("|slope of log variance over depth|, from zero"), "<=", 1e-3, exact=True),
            Criterion(Quantity("slope of log branch output over log depth of the network"), "<", 0.0),
        ),
        seeds=3,
        note=(
            "From zero: 0.01 times the usual weights, the paper's initialisation of that name; with weights of exactly "
            "0 the slope is 0 by construction. What counts as 0 was chosen before a look: 1e-3, a variance that "
            "changes by less than a factor e over 1000 units."
        ),
    ),
    Claim(
        "B23",
        "Zero is a strict saddle for shortcuts of depth 2; shortcuts deeper than 4 are worse still.",
        "smallest eigenvalue of the Hessian; final losses for shortcut depths 4, 5 and 6",
        criteria=(
            Criterion(Quantity("smallest eigenvalue at zero, n = 2"), "<", 0.0),
            Criterion(Quantity("|smallest eigenvalue + largest singular value of M|"), "<=", 1e-12),
            Criterion(Quantity("final loss, 5-shortcut / 4-shortcut"), ">=", 1.0),
            Criterion(Quantity("final loss, 6-shortcut / 4-shortcut"), ">=", 1.0),
        ),
        controls=(TUNED,),
        seeds=3,
        note=(
            "Losses of linear networks of 60 layers from 0.1 times Xavier's weights, each shortcut depth at its best "
            "learning rate; from the paper's 0.01 no shortcut of depth 4 or more leaves zero."
        ),
    ),
)

DECIDED_BY = {
    "B1": "B.theorem2",
    "B2": "B.theorem2",
    "B3": "B.theorem2",
    "B4": "B.theorem2",
    "B5": "B.theorem2",
    "B6": "B.initial",
    "B7": "B.dynamics",
    "B8": "B.dynamics",
    "B9": "B.dynamics",
    "B10": "B.learning",
    "B11": "B.learning",
    "B12": "B.learning",
    "B13": "B.learning",
    "B14": "B.norms",
    "B15": "B.theorem1",
    "B16": "B.theorem1",
    "B17": "B.theorem1",
    "B18": "B.theorem1",
    "B19": "B.shortcuts",
    "B20": "B.initial",
    "B21": "B.theorem2",
    "B22": "B.norms",
    "B23": "B.theorem2",
}


def decided_by(study: str) -> tuple[Claim, ...]:
    return tuple(claim for claim in CLAIMS if DECIDED_BY[claim.id] == study)
