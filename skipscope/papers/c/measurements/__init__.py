"""What the study C.theorems measures: one module per group of theorems."""
