"""Kafka's protocol, shared by the server and the clients: wire primitives, error codes, versions, named offsets."""
