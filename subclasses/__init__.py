"""Tensor types: the core on which they stand, the shipped ones, and the wrapping of parameters."""
