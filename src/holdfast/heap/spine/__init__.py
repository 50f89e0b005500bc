"""The spine: which partition of a heap topic the next message comes from, within the topic's rank bound."""
