"""The population of paper D: networks that differ in nothing but their seeds, and what is measured on each of them.

network.py        one trained network with the test images
measurements.py   what is measured on it, piece by piece
stored.py         the pieces of all networks joined, written and read again
figures.py        the figure of a joined dataset: means over the networks, and how far they reach
views.py          what a report shows of joined datasets
"""
