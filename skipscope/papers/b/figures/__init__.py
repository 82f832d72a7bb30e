"""The figures of paper B."""
