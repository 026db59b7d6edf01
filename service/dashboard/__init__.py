"""The dashboard: pages for people, rendered here over the functions that answer the API; they need no script."""
