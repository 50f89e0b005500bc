"""Kafka's protocol, shared by the server and the clients.

Owns wire primitives, the kio codec, API keys, error codes, enums and special offsets. Does no I/O; knows nothing of topics, groups
or agents.
"""
