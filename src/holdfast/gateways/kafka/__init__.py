"""Kafka on the wire: frames, pipelining, one file per API family. See `server` for the way in and `apis` for what is spoken."""
