"""Contracts that cross a process boundary: the shared-memory layout and the protobuf messages."""
