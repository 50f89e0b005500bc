"""The Kafka gateway: frames, pipelining, one file per API family. `server` is the entry, `api_table` lists the APIs."""
