"""What metrics and traces cost: Kafka produce with them against without, and a scrape of a server with many partitions."""
