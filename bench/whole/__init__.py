"""`lamina bench all`, `compare` and `readme`: all benches in one file of results, and what is made of such files."""
