"""Makes a callable, module:name, a subject that is sealed, measured and judged as a kernel file is."""
