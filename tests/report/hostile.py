"""A run folder from somebody who means harm: every name in it is an attempt to run code or to ask for an address."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import xarray

from skipscope.runs import RunFolder
from tests.report.synthetic import decision, noise_data, spectra_data, stability_data

ADDRESS = "https://attacker.invalid"
CODE = "window.harmed=1"
FILE = f'"><img src=x onerror={CODE}>'  # no slash: the name of a file
NAMES = (
    f'<img src="{ADDRESS}/a.png" onerror="{CODE}">',
    f"</script><script>{CODE}</script>",
    f'"><script>{CODE}</script>',
    f'<a href="{ADDRESS}">a unit</a>',
    f'<span style="background:url({ADDRESS}/b.png)">a unit</span>',
    f'=HYPERLINK("{ADDRESS}")',
    f"<!--<script>{CODE}",
    "\x1b]0;harmed\x07\x1b[2J\u202eunit",
)


def renamed(data: xarray.Dataset) -> xarray.Dataset:
    return data.assign_coords(unit=("unit", [NAMES[k % len(NAMES)] + " " * k for k in range(data.sizes["unit"])]))


def hostile(path: Path) -> Path:
    network = NAMES[0]
    with RunFolder(path, NAMES[1], parameters={NAMES[2]: NAMES[1]}, preset=NAMES[0], device=NAMES[4]) as run:
        run.write_dataset("spectra", renamed(spectra_data(units=7, network=network)))
        run.write_dataset(FILE, renamed(spectra_data(units=7, network=network)))
        run.write_dataset("perturbations", renamed(stability_data(units=8, network=network)))
        run.write_dataset("noise", renamed(noise_data()).assign_attrs(network=NAMES[3]))
        claim = dataclasses.replace(decision(reason=NAMES[3]), claim=NAMES[1], paper=NAMES[4], expected=NAMES[0])
        run.write_claims([dataclasses.replace(claim, measured={NAMES[1]: NAMES[2]})])
        for name in NAMES:
            run.note(name)
    return path
