"""Producing and consuming records: the clients that applications use, on librdkafka.

    model.py             records, partitions, what a broker answers
    settings.py          what can be tuned
    serializers.py       values and keys to bytes and back
    sender.py            one librdkafka producer and the thread that serves its delivery reports
    send_budget.py       how much may be unacknowledged: pure
    producer.py          Producer
    fetcher.py           one librdkafka consumer on a thread of its own
    record_buffer.py     records that were fetched and not delivered yet: pure
    progress.py          what may be committed: pure
    partition_source.py  which partitions a consumer reads, and where its offsets are kept: the contract
    group_source.py      a consumer group
    assigned_source.py   partitions that the caller names, and nothing committed
    registry_source.py   partitions claimed through a registry, with fenced checkpoints
    consumer.py          Consumer

The one rule: a record that was accepted is delivered or its failure is reported; one that was not processed is not committed.
"""
