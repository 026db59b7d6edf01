"""HTTP: bytes to arrays, answers to bytes. Parsing and printing only; what is said is decided below."""
