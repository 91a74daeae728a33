"""The Neuron compiler: NEFFs, its cache on disk, its logs, and the fine-tune on Trainium. Assumptions: `facts.py`."""
