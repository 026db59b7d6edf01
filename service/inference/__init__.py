"""Running a model: sessions on a provider, and the queue in front of them."""
