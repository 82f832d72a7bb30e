"""The studies of paper D: one module per study."""
