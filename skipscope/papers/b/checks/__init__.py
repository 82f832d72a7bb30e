"""Theorem 2 of paper B against numbers: parts of its study."""
