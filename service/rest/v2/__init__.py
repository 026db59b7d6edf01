"""The Open Inference Protocol, version 2, over REST: what Triton's clients, KServe and others speak."""
