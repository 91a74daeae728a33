"""Where a command runs: on this machine, or on those that an engine hands out.

A fleet is a list of commands that were submitted together. An engine (`port`) carries each to a machine and an exit
code back; the shared cache carries what compiled, and leases see to it that nothing compiles twice. cachekit writes no
scheduler: it asks the engine what became of a command, and believes it.
"""
