"""Where a pipeline's rows go. `contract` defines a sink; `factory` makes one from a target."""
