"""JAX's persistent compilation cache. Measured with jax 0.10.2 on a CPU; names from its sources.

JAX's own key is a hash of the program, jaxlib's version, the backend's, its devices, and the options of the compile.
"""

from __future__ import annotations

from cachekit.compilers.folders.adapter import Declaration, FolderAdapter

JAX = Declaration(
    name="jax",
    package="jaxlib",
    install="pip install jax",
    imports=frozenset({"jax", "jaxlib", "flax", "equinox", "haiku", "levanter", "maxtext", "MaxText", "optax"}),
    toolchain=("jax", "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm7-plugin", "jax-neuronx", "libtpu"),
    gpu=("jax-cuda12-plugin", "jax-cuda13-plugin"),
    soft=("flax", "ml-dtypes", "numpy", "optax", "orbax-checkpoint", "zstandard"),
    # Read as jax is imported.
    variable="JAX_COMPILATION_CACHE_DIR",
    set={
        # By default the path of the folder goes into the options of a compile, and so into the key, on a CPU as well: a
        # copy at another path found 0 of 3, and with `none` all. `none` and the default are different keys.
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
        # By default only what took a second is written.
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # With a limit it deletes old entries, and needs a file beside each that says when it was used last.
        "JAX_COMPILATION_CACHE_MAX_SIZE": "-1",
        "JAX_ENABLE_COMPILATION_CACHE": None,
    },
    watched=("JAX_*", "XLA_FLAGS", "LIBTPU_INIT_ARGS"),
    # What only says where processes meet, what is printed, and how an error looks.
    harmless=(
        "JAX_COMPILATION_CACHE_*", "JAX_COORDINATOR_*", "JAX_DEBUG_LOG_MODULES", "JAX_DUMP_*", "JAX_EXPLAIN_*",
        "JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS", "JAX_LOGGING_LEVEL", "JAX_LOG_*", "JAX_PERSISTENT_CACHE_*",
        "JAX_PROCESS_ID", "JAX_RAISE_PERSISTENT_CACHE_ERRORS", "JAX_TRACEBACK_*",
    ),
    # JAX leaves these out of its own key as well: where a dump goes is no part of a program.
    flags={"XLA_FLAGS": ("--xla_dump_",)},
    # `jit_step-<64 hex digits>-cache`, written in place, by the process with number 0 only.
    entry="-cache",
    beside="-atime",
    packed=True,
    seconds=4,
    untouched=(
        "JAX's cache was neither read nor written: nothing was compiled, or the script names a folder of its own "
        "(jax_compilation_cache_dir) or switches the cache off, which wins over the variables that cachekit sets"
    ),
    inert=(
        "JAX found no graph of the earlier runs of this command: unless what it reads has changed, its own key differs "
        "in each run, as where a script sets jax_persistent_cache_enable_xla_caches, which puts a path into that key"
    ),
)  # fmt: skip
ADAPTERS = {JAX.name: FolderAdapter(JAX)}
