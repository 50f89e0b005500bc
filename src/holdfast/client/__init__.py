"""Reading logs from Spark's Python processes: what `holdfast.spark.ranges` stands on.

addresses.py   Kafka addresses
loop.py        the thread that does the I/O of one process
wire.py        one connection to a broker
agents.py      what is asked of brokers: topics, offsets, the tail, where store and objects are
opened.py      a cluster as this process has it open
plans.py       which bytes hold a range
chunks.py      batches of a range, from object storage and from agents
tables.py      batches to Arrow, in the columns of Spark's Kafka source
"""
