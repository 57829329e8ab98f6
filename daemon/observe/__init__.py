"""What the daemon sees: shared memory, processes, their activity and their stacks."""
