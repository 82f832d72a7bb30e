"""The studies of paper A: one module per study."""
