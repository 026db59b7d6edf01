"""The Open Inference Protocol (V2) without a transport: what requests and answers mean."""
