"""The gRPC API `holdfast.v1`: messages and stubs, generated from `proto/holdfast/v1` by `make proto`. Needs the extra `grpc`."""
