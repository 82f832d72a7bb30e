"""Oyedotun, Al Ismaeil, Aouada: Training very deep neural networks: Rethinking the role of skip connections."""
