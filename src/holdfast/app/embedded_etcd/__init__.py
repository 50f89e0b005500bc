"""`--store etcd:embedded`: a real etcd member beside the server. Consensus is etcd's own; nothing here votes or replicates.

`member_start` decides what to do next, from what this node and the cluster know, and `joining` does it; `member_process` keeps the
program running; `member` is all of it for a server.
"""
