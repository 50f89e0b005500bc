"""`engine: structured-streaming`: a pipeline as a StreamingQuery, written exactly once.

Start with `protocol` (what is decided, pure) and `stream_record` (what is recorded); `stream_processor` is the slot at work.
"""
