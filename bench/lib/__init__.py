"""What the scripts of the benchmarks share."""
