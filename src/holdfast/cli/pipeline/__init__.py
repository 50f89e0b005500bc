"""`holdfast pipeline …`: pipelines of a cluster, over HTTP; a file per subcommand."""
