"""The world of driven heaps: partitions and spines as they ship, over a simulated log and network."""
