"""Tracing of a model that is cut into stages."""


class NxDTracer:
    """Its base."""


class HFTracerWrapper(NxDTracer):
    """For Transformers' models."""


def trace_model(*_, **__):
    raise RuntimeError("the stand-in of neuronx-distributed splits nothing")
