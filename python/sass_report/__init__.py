"""Static report on the machine code of CUDA kernels: scripts/sass-report."""
