"""Paper D: the stability of residual units by linearisation.

    skipscope study list                           # its studies and claims
    skipscope study run D --preset quick --out DIR

studies/               one module per study, listed below: settings, what is run, quantities and claims together
subjects.py            what the claims are judged on
measured_networks.py   the networks and images that the studies measure, and spectra that several studies share
summaries.py           what is kept of a spectrum for the claims
population/            what D.population measures on each network, how it is stored, and what a report shows of it
views.py, figures.py   what a report shows of D.scaling and D.noise; the other datasets have views of the core

Its theorems need no code of their own: the law of a unit's spectrum is in the core (`skipscope.linear.law`).

The Jacobian of a unit includes its skip and its last ReLU. Of its n singular values those in 0.99 to 1.01 are near 1,
those above 1.01 above 1. z is the number of inactive outputs, r that of active inner ReLUs. Regular units keep the size
of the state; the others down-sample. The studies of the figures measure small networks and networks whose weights are
given, as evidence beside; D.population decides what is claimed of large ones. Each quantity has one value per network:
images, units and stages are reduced inside it.
"""

from skipscope.registration import Paper, on_first_use

PAPER = Paper(
    letter="D",
    title="Rothauge, Yao, Hu, Mahoney: Residual Networks as Nonlinear Systems: Stability Analysis using Linearization",
    package=__name__,
    studies={
        "verify": "The Jacobian test and the adjoint test",  # D1
        "law": "The exact law of a unit's spectrum",  # D3
        "spectra": "Scree plots of units, down-sampling units and stages (figure 1)",
        "proportions": "Shares of singular values, unit by unit (figure 2)",
        "perturbations": "How perturbations travel (figure 3)",
        "projections": "Perturbations on singular vectors (figure 4)",
        "scaling": "The plateau of a scaled skip (figure 5, left)",  # D15
        "noise": "Weights between trained ones and noise (figure 5, right)",
        "population": "Large networks that differ only in their seeds",  # D2, D4 to D14, D16 to D18
    },
    views=on_first_use(f"{__name__}.views", "VIEWS"),
    figures=on_first_use(f"{__name__}.figures", "FIGURES"),
)
