"""Whether `skipscope check` is right about networks that nobody has seen before, drawn at random."""
