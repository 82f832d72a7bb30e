"""What the variables of `coupling`, `depth_use`, `lens` and `normality` are; `descriptions` has all others."""

from __future__ import annotations

DEPTH_USE = {
    "influence": "1 - cosine of the states at the unit's entry and exit",
    "branch_share": "size of the branch over size of the skip",
    "branch_cosine": "cosine between branch and skip",
    "block_influence": "mean over positions of 1 - cosine of the states at the unit's entry and exit",
    "growth": "geometric mean over positions of the size of the state after the unit over that before",
    "state_norm": "size of the state",
    "total_growth": "mean over positions of the size of the state, over that of the first state",
    "massive_ratio": "largest magnitude of an entry of the state over the median",
    "massive_value": "entry of the state of the largest magnitude",
    "massive_dimension": "dimension (channel) of that entry",
    "massive_position": "position of that entry",
    "lens_kl": "divergence in nats of what the head makes of the state from what the model predicts",
    "skip_kl": "divergence in nats of the prediction without the unit's branch from that with it",
    "skip_loss_change": "loss without the unit's branch minus loss with it",
    "loss": "loss: - log probability of the target",
    "position": "position in the sequence, from 0",
}
_M_K = "distance of a Jacobian from diagonal in the leading singular vectors of another"
COUPLING = {
    "coupling": f"{_M_K} block, for the same tokens (m_K)",
    "coupling_signed": f"{_M_K} block, for the same tokens, with signs (m_K)",
    "token_coupling": f"{_M_K} pair of tokens, in the same block (m_K)",
    "token_coupling_signed": f"{_M_K} pair of tokens, in the same block, with signs (m_K)",
    "chance": "mean m_K with random orthonormal vectors",
    "chance_error": "standard error: mean m_K with random orthonormal vectors",
    "chance_signed": "mean m_K with random orthonormal vectors, with signs",
    "chance_signed_error": "standard error: mean m_K with random orthonormal vectors, with signs",
    "value": "singular value",
    "residual": "residual of the singular triplet",
    "entry_token": "position at the entry",
    "exit_token": "position at the exit",
}
COUPLING_COUNTS = {"k_used": "leading singular vectors that are used"}
COUPLING_TEXTS = {
    "unit": "block or residual unit",
    "other": "block or residual unit whose singular vectors are used",
    "pair": "positions at the entry and at the exit",
    "other_pair": "positions whose singular vectors are used",
}
LENS = {
    "lens": "Jacobian lens: mean derivative of the last state with respect to the state at the unit's entry",
    "lens_error": "standard error over prompts: Jacobian lens",
    "relative_error": "size of the standard error of the lens over the size of the lens",
    "split_half_cosine": "cosine of the lens of one half of the prompts and that of the other",
    "identity_cosine": "cosine of the lens and the identity",
    "gain": "root mean square of the singular values of the lens",
    "history": "size of the standard error over the size of the lens, after some of the prompts",
    "arithmetic_error": "relative difference of some rows of the lens from those computed in float64",
    "converged": "whether the relative standard error is within its tolerance",
}
LENS_COUNTS = {"prompts": "prompts that were used"}
NORMALITY = {
    "eigenvalue_real": "real part of the eigenvalue",
    "eigenvalue_imaginary": "imaginary part of the eigenvalue",
    "condition": "condition number of the eigenvalue",
    "spectral_radius": "largest magnitude of an eigenvalue",
    "departure": "departure from normality: size of the part of the Schur form above its diagonal over the whole",
    "amplification": "largest singular value over largest magnitude of an eigenvalue",
    "rotation": "share of the imaginary parts in the sum of squares of the eigenvalues",
    "frobenius": "Frobenius norm of the Jacobian",
    "residual": "relative residual of the Schur decomposition",
    "index": "place of the eigenvalue, the largest magnitude first",
}
DEPTH_USE_TEXTS = {
    "state": "state: a unit's entry, or the last exit",
    "scope": "positions that are counted",
}
