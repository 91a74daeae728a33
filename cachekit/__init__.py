"""Compile once: a compilation-cache manager and model-zoo toolkit for AWS Trainium and any PyTorch machine."""

__version__ = "0.1.0"
