"""The sink of `format("holdfast")`: rows of a DataFrame become records of topics, exactly once.

    options.py        what a writer may be told
    rows.py           an Arrow batch as the columns of records; which columns there may be
    texts.py          values that are not bytes, as JSON
    placing.py        which partition a row goes to
    encoding.py       columns to RecordBatches, by partition
    pieces.py         what a task has staged, and how it is written down
    staging.py        a task's part: rows in, pieces in object storage out
    ledger.py         what stands in the store about a query: its plan, its producer, its sequences
    lanes.py          a plan as batches per partition, numbered
    brokers.py        Produce, and what a partition holds of a producer
    publishing.py     the driver's part: plan, publish, mark done, clean up
    sweeping.py       pieces that no plan names
    writers.py        what Spark calls

The one rule: tasks only stage. One commit per (query, batch) in the store decides what is published and under which sequence
numbers; whoever carries it out, however often, sends the same bytes with the same numbers, and the broker takes each once.
"""
