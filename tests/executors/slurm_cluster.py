"""Three nodes of a real Slurm on this machine, from Debian's packages: no systemd, no munge, no accounting.

A node is a space of processes with a host name of its own, so that a kill of its first process is the death of a
machine, with all that runs on it. It needs root, and `unshare` of util-linux.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

NODES = ("n1", "n2", "n3")
NEEDS = ("slurmctld", "slurmd", "sbatch", "unshare")
SPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child=KILL")
READY = 60.0  # seconds until the nodes must be idle

# auth/none and cred/none want no daemon; cred_expire and sched_interval let a requeued job begin within seconds instead
# of two minutes; linuxproc wants no cgroups.
CONFIGURATION = """\
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/ctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/ctld.log
SlurmdLogFile={folder}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
ReturnToService=2
MinJobAge={min_job_age}
SlurmdTimeout=5
BatchStartTimeout=5
MessageTimeout=3
KillWait=2
"""


def lacking():
    """What a cluster needs and this machine has not; empty where nothing."""
    absent = [name for name in NEEDS if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)}: sh tests/executors/install_slurm.sh"
    if os.geteuid():
        return "nodes of their own need root"
    if not any(Path("/sys/fs/cgroup").iterdir()):
        return "slurmd looks for cgroups in /sys/fs/cgroup, though none are used"
    apart = subprocess.run([*SPACE, "true"], capture_output=True, check=False)
    return "" if apart.returncode == 0 else f"no space of processes of its own: {apart.stderr.decode().strip()}"


def _ports(count):
    """Ports that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """A running cluster.

    Args:
        folder: Its files.
        min_job_age: Seconds after which the controller forgets a job that ended.
    """

    def __init__(self, folder, min_job_age=300):
        self.folder = folder
        self._nodes = {}
        self._controller = None
        for name in ("state", "log", "run", *(f"spool/{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        controller, *ports = _ports(1 + len(NODES))
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(host=host, port=controller, folder=folder, min_job_age=min_job_age)
        for node, port in zip(NODES, ports, strict=True):
            text += f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=1000\n"
        text += f"PartitionName=c Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP\n"
        text += f"PartitionName=short Nodes={NODES[0]} MaxTime=30 State=UP\n"
        (folder / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in ("localhost", host, *NODES)))
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(text)
        self.environment = {**os.environ, "SLURM_CONF": str(self.configuration)}

    def __enter__(self):
        self.start_controller()
        for node in NODES:
            self.start(node)
        deadline = time.monotonic() + READY
        while self.idle() < len(NODES):
            assert time.monotonic() < deadline, (self.folder / "log/ctld.log").read_text()[-3000:]
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.stop_controller()
        for node in list(self._nodes):
            self.kill(node)

    def asked(self, *command):
        """What a program of Slurm's prints; nothing where it fails."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout.strip()

    def idle(self):
        """How many nodes are idle; each is told once for each of its partitions."""
        return len(set(self.asked("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split()))

    def start_controller(self):
        """Start the controller."""
        self._controller = subprocess.Popen(["slurmctld", "-D"], env=self.environment, stderr=subprocess.DEVNULL)

    def stop_controller(self):
        """Stop the controller, which notes what it knows; the nodes and their jobs go on.

        After a kill it would know nothing of what was submitted in its last seconds.
        """
        self._controller.terminate()
        self._controller.wait()

    def start(self, node):
        """Start a node, or start it again."""
        script = f"hostname {node}; mount --bind {self.folder}/hosts /etc/hosts; exec slurmd -N {node} -D"
        self._nodes[node] = subprocess.Popen(
            [*SPACE, "sh", "-c", script], env=self.environment, stderr=subprocess.DEVNULL
        )

    def kill(self, node):
        """A machine's death: every process on it is gone at once."""
        one = self._nodes.pop(node)
        for child in _children(one.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        one.kill()
        one.wait()


def _children(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []
