"""Paper B: why shortcuts of depth 2 are special, by the Hessian of networks with shortcuts of depth n.

    skipscope study list                           # its studies and claims
    skipscope study run B --preset quick --out DIR

studies/             one module per study, listed below: settings, what is run, quantities and claims together
theory/              the theorems as code
networks/            n-shortcut networks, their loss, their exact Hessian, and many of them trained side by side
subjects.py          the kinds of networks that are compared, and the data: whitened components of images
learning_rates.py    the search of the best learning rate, on networks of calibration
alike.py             how far apart two kinds of networks are, and networks of one kind that differ in their seeds
measurements/        what the studies measure, where it is more than fits into their modules
views/, figures/     what a report shows of the datasets

A network of shortcut depth n has R units of n layers; its depth is n R. M is S^XX - S^YX of whitened inputs X and
targets Y. cond is the largest over the smallest absolute eigenvalue of the Hessian; log10 cond in B5 to B7 and B20
takes the 10th percentile in place of the smallest, as the paper does. "Excess loss" is the final loss minus the best
that a linear map can do. Of trained or randomly initialised networks a quantity has one value per network, unless its
note differs.
"""

from skipscope.registration import Paper, on_first_use

PAPER = Paper(
    letter="B",
    title="Li, Jiao, Han, Weissman: Demystifying ResNet",
    package=__name__,
    studies={
        "theorem2": "The Hessian at zero weights: theorem 2",  # B1 to B5, B21, B23
        "theorem1": "Small weights that interpolate: the construction of theorem 1",  # B15 to B18
        "initial": "Conditioning of the Hessian at initialisation (figure 4)",  # B6, B20
        "dynamics": "Conditioning and index of the Hessian on the way to the optimum (figures 5 and 6)",  # B7 to B9
        "learning": "Final losses at the best learning rate (figures 7 and 8)",  # B10 to B13, and the losses for B20
        "norms": "Deeper networks have smaller weights (figures 2 and 3)",  # B14, B22
        "shortcuts": "Shortcuts of depths 1 to 4 (figure 9)",  # B19, and the ResNets for B23
    },
    views=on_first_use(f"{__name__}.views", "VIEWS"),
)
