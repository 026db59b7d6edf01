"""What people and programs do with a service, without a transport: plain functions over state and models."""
