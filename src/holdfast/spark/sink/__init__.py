"""The sink of `format("holdfast")`: rows of a DataFrame become records of topics, exactly once.

    options.py        the options, parsed and checked
    rows.py           an Arrow batch as the columns of records; which columns are allowed
    json_values.py    values that are not bytes, as JSON
    partitioner.py    which partition a row goes to
    encoder.py        columns to RecordBatches, by partition
    pieces.py         what a task has staged, and how it is encoded
    stager.py         a task's part: rows in, staged pieces out
    query_state.py    a query's state in the store: its plan, its producer, its sequences
    sequences.py      the batches of a plan with their sequence numbers
    plan_sender.py    sends a plan, or one task's share of it
    publisher.py      the driver's part: plan, publish, mark done, clean up
    executor_publishing.py   the same with tasks that send: plans are divided among them
    sweeper.py        deletes pieces that no plan refers to
    topics.py         topics that rows are written to: found, or created where the server allows it
    writers.py        the writers that Spark calls
    foreach_batch.py  a function for `foreachBatch`, whose tasks also send

The one rule: tasks stage, and send nothing that is not planned. One commit per (query, batch) in the store decides what is
published and under which sequence numbers; every execution of that plan, in whatever process, sends the same bytes with the same
numbers, and the broker appends each batch once.
"""
