"""Some tokens of a sequence followed alone through a piece of the graph."""
