"""The studies of paper C: one module per study."""
