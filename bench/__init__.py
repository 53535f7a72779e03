"""lamina.bench: what each layer of a tensor subclass costs, measured next to its peers."""
