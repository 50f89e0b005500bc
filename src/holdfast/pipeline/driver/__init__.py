"""What runs in the Spark driver's process: slots, batches, and the steps by which a range lands once."""
