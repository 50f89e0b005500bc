"""What `holdfast demo` is made of: a server if there is none, a stream of events, a pipeline, and rows that are counted."""
