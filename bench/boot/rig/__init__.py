"""What the boot benchmarks share."""
