"""Read what Neuron's tools print.

`reader` gives the events of a run's output, `summary` adds them up, `compiler` reads the compiler's own log.
"""
