"""Several processes behind one port, and the supervisor that starts, watches and stops them."""
