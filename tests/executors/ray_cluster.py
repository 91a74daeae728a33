"""A real Ray cluster on this machine, of three nodes which share its name, files and process ids."""

from contextlib import contextmanager

import pytest

SMALL = {"object_store_memory": 80_000_000, "num_cpus": 2}  # of a node
ATTEMPTS = 3  # Ray gives a node 30 seconds to start, which a busy machine may need more than


@contextmanager
def three_nodes():
    """A head, which has no CPU for commands, and two nodes, one of which has cores of Neuron."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="no Ray: make test-ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_health_check_period_ms", "500")  # of nodes
        head = {**SMALL, "num_cpus": 0, "include_dashboard": False}
        found = _started(lambda: cluster_utils.Cluster(initialize_head=True, head_node_args=head))
        try:
            found.plain = _started(lambda: found.add_node(**SMALL))
            _started(lambda: found.add_node(**SMALL, resources={"neuron_cores": 2}))
            found.wait_for_nodes()
            yield found
        finally:
            found.shutdown()


def _started(start):
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return start()
        except Exception as error:  # Ray's own has no class of its own
            if attempt == ATTEMPTS or "timed out during startup" not in str(error):
                raise
    return None
