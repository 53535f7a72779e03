"""Classes that are broken on purpose, a module for each group of checks."""
