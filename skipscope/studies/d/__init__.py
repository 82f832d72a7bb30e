"""Rothauge, Yao, Hu, Mahoney: Residual Networks as Nonlinear Systems: Stability Analysis using Linearization."""
