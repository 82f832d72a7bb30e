"""Paper C: why very deep plain networks become singular, and what skips have to do with it.

    skipscope study list                           # its studies and claims
    skipscope study run C --preset quick --out DIR

studies/               one module per study, listed below: settings, what is run, quantities and claims together
theory/                its theorems as code: products of commuting and random weights, least squares, ranks of gradients
measures.py            what it alone measures: the sensitivity of proposition 3
subjects.py            what is trained: a data set, a depth and a form, and the twins of each
twins.py               the twins, at rates that are chosen on a calibration seed, and measured at equal ones
layer_conditions.py    condition numbers of weights and hidden states, layer by layer
measurements/          what the studies of the theory measure, one module per group of theorems
views/, figures/       what a report shows of its datasets

Its networks are the core's: ResNets, their plain twins, ResNeXts and DiracNets (`skipscope.models`).

PlainNet, ResNet and ResNeXt are the same network without skips, with them, and with several paths per branch (twins).
cond is a condition number, of a weight or of the hidden states of a batch; it is numerically infinite at
1 / (eps times the largest dimension) or above. Quantities that span orders of magnitude are logarithms, so that a mean
means something. Of trained networks a quantity has one value per seed.
"""

from skipscope.registration import Paper, on_first_use

PAPER = Paper(
    letter="C",
    title="Oyedotun, Al Ismaeil, Aouada: Training very deep neural networks: Rethinking the role of skip connections",
    package=__name__,
    studies={
        "theorems": "Products of many weights: theorems 1 to 3, propositions 1 and 3",  # C9 to C13
        # C1, C2
        "accuracy": "Accuracies of very deep networks with skips and without (tables 1 to 4, figures 2 and 3)",
        # C8, C15
        "histograms": "Activations, weights and gradients at both ends, and ranks of gradients (figures 4 to 6)",
        "weights": "Condition numbers of weights, layer by layer (figures 7 and 8)",  # C3, C4
        "hidden": "Condition numbers of hidden states, layer by layer (figure 9)",  # C5, C6
        "linear": "Condition numbers in networks with linear units (figures 12 and 13)",  # C7
        "deeper": "Networks of 200 layers (figures 10 and 11)",  # more numbers for C1 to C6
        "norms": "Which statements need batch norms, and which need none",  # more numbers for C1, C3 to C6, C8, C15
        "dirac": "DiracNets: an identity in the weights in place of skips",  # C17
        "orthogonal": "PlainNets with equal singular values (section 6.5)",  # C16
        "generalisation": "Conditioning and generalisation of 40 networks",  # C14
    },
    views=on_first_use(f"{__name__}.views", "VIEWS"),
    figures=on_first_use(f"{__name__}.figures", "FIGURES"),
    measures=on_first_use(f"{__name__}.measures", "MEASURES"),
)
