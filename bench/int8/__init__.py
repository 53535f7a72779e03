"""`lamina bench int8`: what a linear layer with int8 weights costs, next to plain, torchao and the machine's floors."""
