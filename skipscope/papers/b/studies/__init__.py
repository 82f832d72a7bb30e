"""The studies of paper B: one module per study."""
