"""`lamina bench step`: what layers of a tensor subclass around the weights cost a training step, and where it goes."""
