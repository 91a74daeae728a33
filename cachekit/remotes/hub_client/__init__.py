"""`huggingface_hub` with an end to every call: what the two tiers of the Hub, repos and buckets, have of it in common.

`call` is one call, its limits and its thread; `session` binds the client's HTTP session to it; `habits` are requests of
the client's own that a cache has no use for.
"""
