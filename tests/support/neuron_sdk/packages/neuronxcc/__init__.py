"""Stands in for AWS's compiler package `neuronx-cc` (closed).

Follows: the version string carries `+<commit>`, as in real compiler directories. Invented: everything it "compiles".
"""

__version__ = "2.26.6360.0+6f180f47"  # the build of the real logs that cachekit is tested on
