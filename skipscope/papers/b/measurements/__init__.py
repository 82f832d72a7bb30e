"""What the studies of paper B measure, where that is more than fits into the module of the study itself."""
