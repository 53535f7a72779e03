"""The core: declaring a type, and dispatching its ops by table. README.md says in which order to read it."""
