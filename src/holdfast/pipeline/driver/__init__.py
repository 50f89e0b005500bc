"""What runs in the Spark driver's process: slots, batches, and the protocol that writes every range once."""
