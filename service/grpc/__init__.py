"""The Open Inference Protocol over gRPC: messages to arrays, and answers to messages."""
