"""Objectives, optimisers and curves that the methods fit with, and the data that they read chunk by chunk."""
