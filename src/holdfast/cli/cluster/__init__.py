"""Commands about a cluster's agents, partitions and leases. They talk to the store, so that they work whoever is down."""
