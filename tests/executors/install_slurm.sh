#!/bin/sh
# Slurm from Debian's packages, with none of its daemons started: the tests start their own, with a configuration of theirs.
set -eu
if command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v sbatch >/dev/null; then exit 0; fi
policy=/usr/sbin/policy-rc.d  # invoke-rc.d(8): 101 forbids to start anything
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -qq -y --no-install-recommends slurmctld slurmd slurm-client >/dev/null; }
install || { apt-get update -qq && install; } || echo "Slurm cannot be installed here: its tests are skipped"
