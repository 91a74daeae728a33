"""A test Hub: the Hugging Face Hub's protocol over a folder, for the real, unmodified `huggingface_hub` clients.

    with HubServer(folder) as hub:
        environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": hub.token}
        hub.fault("504", "POST */commit/*", landed=True)
        ...
        assert hub.count("POST */commit/*") == 1

or, for two shells with a home each (`python -m tests.support.hubserver FOLDER --port 8911`).

It stands in for huggingface.co in tests and is not it: each module's docstring says what is the Hub's contract (from
public documentation, reports, and from what the clients 0.36.2, 1.33.0 and 2.4.0 send and take) and what is invented.
Nothing was compared with the live service. Left out: pull requests and discussions, spaces, gated repositories,
copies between repositories, lists of repositories, the search for duplicate chunks.
"""

from .faults import Fault
from .log import Entry
from .repos import Repo
from .server import HubServer

__all__ = ["Entry", "Fault", "HubServer", "Repo"]
