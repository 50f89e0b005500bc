"""Where a pipeline's rows go. `contract` says what a sink is; `choosing` makes one from a recipe."""
