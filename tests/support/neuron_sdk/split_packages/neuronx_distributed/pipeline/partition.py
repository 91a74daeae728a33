"""Stages of a model."""


def analyze_shared_weights_across_stages(*_):
    return []
