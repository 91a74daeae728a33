"""PyTorch Inductor: the compiler that runs on any machine with PyTorch, on CPU or GPU.

`facts.py` holds every variable, path and measured behaviour of it; a correction is one edit there.
"""
