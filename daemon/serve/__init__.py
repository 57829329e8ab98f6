"""What the daemon serves: gRPC queries, metrics and health over HTTP."""
