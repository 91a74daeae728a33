"""What optimum-neuron asks of the machine."""


def get_platform_target() -> str:
    """The chip, as the compiler calls it."""
    return "trn1"
