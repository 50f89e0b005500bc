"""Holdfast on Spark: a session that runs anywhere, topics as a source and as a sink of DataFrames."""
