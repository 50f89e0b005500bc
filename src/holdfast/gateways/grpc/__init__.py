"""gRPC: the services of `proto/holdfast/v1`, at any node. Importing the server imports grpcio, which the extra `grpc` brings."""
