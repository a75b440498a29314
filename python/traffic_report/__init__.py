"""What the CUDA kernels of a layer move, counted by the emulator and held against closed formulas."""
