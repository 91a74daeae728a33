"""NKI's attention, which takes multiples of 2048 tokens only."""

LENGTH = 2048


def nki_flash_attn_func(queries, *_, **__):
    """Refuses what the kernel refuses, and does nothing else: it needs the device."""
    if queries.shape[-1] % LENGTH and queries.shape[-2] % LENGTH:
        raise NotImplementedError("Only support sequence as multiples of 2K")
    raise RuntimeError("the stand-in of neuronx-distributed has no kernels")
