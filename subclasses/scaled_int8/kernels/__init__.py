"""Products of a float matrix with an int8 one: plain tensors in, a plain tensor out. Read activations, blocks, floats,
integers, groups, then cpu and cuda."""
