"""Paper D: the stability of residual units by linearisation.

    skipscope study list                           # its studies and claims
    skipscope study run D --preset quick --out DIR

studies/               one module per study, listed below: settings, what is run, quantities and claims together
measured_networks.py   the networks and images that the studies measure, and spectra that several studies share
views.py, figures.py   what a report shows of D.scaling and D.noise; the other datasets have views of the core

Its theorems need no code of their own: the law of a unit's spectrum is in the core (`skipscope.linear.law`).

The Jacobian of a unit includes its skip and its last ReLU. Of its n singular values those in 0.99 to 1.01 are near 1,
those above 1.01 above 1. z is the number of inactive outputs, r that of active inner ReLUs. Regular units keep the size
of the state; the others down-sample. A quantity's members are the units, stages or images that its name speaks of, over
all networks, and otherwise the networks.
"""

from skipscope.registration import Paper, on_first_use

PAPER = Paper(
    letter="D",
    title="Rothauge, Yao, Hu, Mahoney: Residual Networks as Nonlinear Systems: Stability Analysis using Linearization",
    package=__name__,
    studies={
        "verify": "The Jacobian test and the adjoint test",  # D1
        "law": "The exact law of a unit's spectrum",  # D3
        "spectra": "Scree plots of units, down-sampling units and stages (figure 1)",  # D4, D5, D6, D17, D18
        "proportions": "Shares of singular values, unit by unit (figure 2)",  # D2, D7, D8, D9
        "perturbations": "How perturbations travel (figure 3)",  # D10, D11, D12, D13
        "projections": "Perturbations on singular vectors (figure 4)",  # D14
        "scaling": "The plateau of a scaled skip (figure 5, left)",  # D15
        "noise": "Weights between trained ones and noise (figure 5, right)",  # D16
    },
    views=on_first_use(f"{__name__}.views", "VIEWS"),
    figures=on_first_use(f"{__name__}.figures", "FIGURES"),
)
