"""Paper A: how the Jacobians of residual blocks align in training.

    skipscope study list                           # its studies and claims
    skipscope study run A --preset quick --out DIR

studies/               one module per study, listed below: settings, what is run, quantities and claims together
theory/                the theorems as code
networks/              the paper's networks, of types 1 to 3
subjects.py            what is trained: a type of network on a data set, and how
emergence.py           what is measured of these networks on their way through the training
grids.py, doses.py     the paper's grids of Jacobians; networks that differ in one number, with intervals
quantities.py          what claims speak of, and where these datasets hold it
views/, figures/       what a report shows of the datasets

RA1 to RA4 are the paper's four properties. J_i is the Jacobian of the branch of block i, masked by the block's last
ReLU; s_k, u_k and v_k are its singular values and vectors; C is the number of classes. m_K(J_i; J_j) says how far U_j^T
J_i V_j is from the diagonal of J_i's K leading singular values; chance is its value after random rotations of the same
spectra. LSS is the length of a line of unit steps over the distance it covers: 1 if straight. Unless a name says
otherwise a quantity has one value per seed: the mean over at least 10 training samples, of a trained network with
skips.
"""

from skipscope.registration import Paper, on_first_use

PAPER = Paper(
    letter="A",
    title="Li, Papyan: Residual Alignment: Uncovering the Mechanisms of Residual Networks",
    package=__name__,
    studies={
        "alignment": "Residual alignment of a type of network on a data set (RA1 to RA4)",  # A1 to A7
        "counterfactuals": "Residual alignment without weight decay, and with stochastic depth",  # A11, A16
        "decay": "Residual alignment by weight decay and length of the training",  # more numbers for A16
        "skips": "Residual alignment with and without skips, trained alike",  # A8
        "classes": "Large singular values and the number of classes",  # A9
        "sizes": "Residual alignment across depths and widths",  # A10
        "labels": "Residual alignment and label noise",  # A13
        "collapse": "Alignment and neural collapse, along the training and across networks",  # A12
        "theorem31": "Aligned Jacobians make a line: theorem 3.1",  # A14
        "theorem33": "Free Jacobians align: theorem 3.3",  # A15, A17
    },
    networks=on_first_use(f"{__name__}.networks.names", "FAMILIES"),
    views=on_first_use(f"{__name__}.views", "VIEWS"),
    figures=on_first_use(f"{__name__}.figures", "FIGURES"),
)
