"""scripts/gpu-check: a kit that validates and times the CUDA kernels on a machine with a GPU, and what runs in it."""


class Failure(Exception):
    """One line for the user."""
