"""The theorems of paper C against numbers: one module per group of theorems, all run by the study C.theorems."""
