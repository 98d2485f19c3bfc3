"""Speed and memory, printed as tables and ratios; run each on a machine that does nothing else."""
