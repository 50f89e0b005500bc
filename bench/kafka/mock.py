"""`python -m bench.kafka.mock`: librdkafka's own mock cluster as a process of its own.

The first line it prints is its bootstrap address; then it reads lines `topic partitions`, makes each topic and says `made`.
It ends with its input. Everything is in librdkafka's threads; Python waits.
"""

import ctypes
import sys

from bench.kafka.programs import librdkafka

PRODUCER = 0


def main() -> int:
    library = ctypes.CDLL(str(librdkafka()))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_new.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = (ctypes.c_void_p,)
    library.rd_kafka_mock_topic_create.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)

    why = ctypes.create_string_buffer(512)
    client = library.rd_kafka_new(PRODUCER, library.rd_kafka_conf_new(), why, len(why))
    if client is None:
        sys.exit(f"librdkafka: {why.value.decode()}")
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        name, partitions = line.split()
        error = library.rd_kafka_mock_topic_create(cluster, name.encode(), int(partitions), 1)
        print("made" if error == 0 else f"error {error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
