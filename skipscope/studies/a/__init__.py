"""Li, Papyan: Residual Alignment: Uncovering the Mechanisms of Residual Networks."""
