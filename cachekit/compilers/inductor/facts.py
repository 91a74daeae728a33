"""What is known of Inductor: variables, files, flags. Measured with torch 2.13.0 unless another source is given."""

from __future__ import annotations

CACHE_DIR = "TORCHINDUCTOR_CACHE_DIR"
TRITON_CACHE_DIR = "TRITON_CACHE_DIR"  # beside the Inductor cache by default, but only if unset
CXX = "CXX"

# Inductor keys its C++ kernels by torch.get_num_threads() (`cpp_runtime_thread_count` of FxGraphHashDetails), so the
# number of threads is an ingredient, and the worker is told it. A cache made with 2 threads misses whole with 1.
THREADS = "OMP_NUM_THREADS"
# torch.get_num_threads() asks MKL as well, whose variable wins; OpenMP may give fewer threads than it was asked for.
MKL_THREADS = "MKL_NUM_THREADS"
FEWER_THREADS = ("OMP_THREAD_LIMIT", "OMP_DYNAMIC", "MKL_DYNAMIC")

# A global header of some 150 MB, in <tmp>/torchinductor_<user>, outside of the cache. It halves a cold compile and is
# built (8 s) by the first process of a user that needs a kernel, even if every kernel is there already. Its switch is
# part of the graph key as shipped; the runtime takes it out of there, since it changes no generated code, so that a
# run that finds everything need not build it. It is compiled into kernels, and in a shared <tmp> anybody may make that
# folder first: so the variable says no, and `portable.share_in` says yes once it has moved the folder.
PRECOMPILE_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"
PRECOMPILE_HEADERS_CONFIG = "cpp_cache_precompile_headers"
# A folder of this user alone for that, and for what else Inductor keeps in <tmp> between runs (pickles of what was
# measured): one of ours. No path of it is in a key.
SHARED = "CACHEKIT_SHARED"
# It is also a macro on the command line by which each kernel is named, and taken out of there for the same reason.
PRECOMPILE_HEADERS_MACRO = "TORCH_INDUCTOR_PRECOMPILE_HEADERS"
# What is taken out of Inductor's key: the header's switch, and how the C++ compiler is called, whose version is an
# ingredient.
IGNORED = (PRECOMPILE_HEADERS_CONFIG, "cpp.cxx")

# Fields of `training` that affect no graph, since the worker compiles the model's forward pass alone, and what comes of
# it is its backward pass: the optimizer, its clipping and the sum of several batches are plain PyTorch around it.
# Measured with each optimizer of the schema by tests/verbs/test_key_graphs.py.
NOT_COMPILED = frozenset(
    {
        "gradient_accumulation_steps",
        "optim",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "max_grad_norm",
    }
)

# Every variable that the packages of PyTorch's compiler read is in one of the lists below:
# tests/compilers/inductor/test_facts.py reads their source, and fails where a new torch has one that nobody has thought
# about.

# What the worker gets in place of what the shell says: a value, or nothing.
FORCED: dict[str, str | None] = {
    # The caches may have been switched off; under cachekit they are what it is about.
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": None,
    "TORCH_COMPILE_FORCE_DISABLE_CACHES": None,
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": None,
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": None,
    "TORCH_COMPILE_DISABLE": None,
    "TORCHDYNAMO_DISABLE": None,
    # Set by whoever runs the job, and nobody means a graph by it: CI makes a warning an error, which is in the key of
    # AOTAutograd (torch/_functorch/config.py, error_on_custom_op_aliasing); a job's id turns profile-guided shapes on.
    "CI": None,
    "TORCH_COMPILE_JOB_ID": None,
    "TORCH_COMPILE_STICKY_PGO_KEY": None,
    "TORCH_COMPILE_STICKY_PGO_READ": None,
    "TORCH_COMPILE_STICKY_PGO_WRITE": None,
    "PT2_COMPILE_ID_PREFIX": None,
    # Another C++ compiler than the one whose version is an ingredient, fetched from the network.
    "TORCH_INDUCTOR_INSTALL_GXX": None,
    **dict.fromkeys(FEWER_THREADS),
}
# The same, with values of the run.
SET = frozenset({CACHE_DIR, TRITON_CACHE_DIR, PRECOMPILE_HEADERS, THREADS, MKL_THREADS})

# One of ours: the folder where a user's own command leaves its counters. Read by `hook/` only. Without INDUCTOR, TORCH
# or TRITON in its name: torch writes such variables into the graphs (`_dynamo/debug_utils.py`).
REPORTS = "CACHEKIT_REPORTS"
# Likewise: when the command was given graphs, in nanoseconds: finding one that lay there saves what compiling it took.
RESTORED = "CACHEKIT_RESTORED"
# Ingredients that Inductor's key lacks (the C++ compiler), that a variable may bring past it, or that change all keys.
FOREIGN = (
    "compiler.name",
    "compiler.environment.",
    "environment.",
    "target.",
    "toolchain.torch",
    "toolchain.triton",
    "toolchain.python",
    "toolchain.cxx",
)
# Of FORCED, what a user's own command keeps as its shell says it: whether it compiles at all is its business. So are
# threads and CI, which change Inductor's own keys only: then it compiles, and both are kept.
OWN = frozenset({"TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE", "CI", "TORCH_INDUCTOR_INSTALL_GXX", *FEWER_THREADS})

# Variables with these beginnings may change graphs or code, and are ingredients when they are set ...
WATCHED_PREFIXES = (
    "AOTINDUCTOR_",
    "AOT_",
    "CUTEDSL_",
    "CUTLASS_",
    "HALIDE_",
    "INDUCTOR_",
    "PARTITIONER_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TORCH_COMPILER_",
    "TORCH_COMPILE_",
    "TORCH_DYNAMO_",
    "TORCH_FAKE_TENSOR_",
)
# ... and so are these ...
WATCHED = frozenset(
    {
        "ATEN_CPU_CAPABILITY",
        "CUBLAS_WORKSPACE_CONFIG",
        "DUMP_AOTI_MINIFIER",
        "ENABLE_PERSISTENT_TMA_MATMUL",
        "ENABLE_TEMPLATE_TMA_STORE",
        "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE",
        "FAKE_ALLOW_META",
        "FX_PATCH_GETITEM",
        "LOG_TLPARSE",  # logging, but in Inductor's key
        "PYTORCH_GEN_PATTERNS",
        "PYTORCH_JIT",
        "PYTORCH_REORDER_COLLECTIVES_LIMIT",
        "PYTORCH_ROCM_ARCH",
        "PYTORCH_SINK_WAITS_LIMIT",
        "TENSORIFY_PYTHON_SCALARS",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",  # read in C++ (ATen/Context.cpp); `cuda_matmul_settings` of Inductor's key
        "TORCH_CACHING_PRECOMPILE",
        "TORCH_CUDAGRAPH_GC",
        "TORCH_DISABLE_NATIVE_JIT",
        "TORCH_ENRICH_RPOFILER_STACK_TRACE",
        "TORCH_NATIVE_SKIP_VERSION_CHECK",
        "TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN",
        "TORCH_STRICT_PRECOMPILE",
        "TRITON_INTERPRET",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_PTXAS_PATH",
        "TRITON_USE_META_WS",
        "UNSAFE_SKIP_FSDP_MODULE_GUARDS",
    }
)
# ... but not these, which reach neither graphs nor keys, whoever else reads them. Reason to names.
_EXCUSED = {
    "what a printed graph shows": "FX_GRAPH_SHOW_DEVICE FX_GRAPH_SHOW_META FX_GRAPH_SHOW_STRIDE",
    "logging": """
        LOG_AUTOTUNE_RESULTS PYTORCH_MATCHER_LOGLEVEL TORCHDYNAMO_DEBUG_FUNCTION
        TORCHDYNAMO_EXTENDED_DEBUG_CPP TORCHDYNAMO_EXTENDED_DEBUG_CREATE_SYMBOL
        TORCHDYNAMO_EXTENDED_DEBUG_GUARD_ADDED TORCHDYNAMO_PRINT_MISSING TORCHDYNAMO_VERBOSE
        TORCHEXPORT_EXTENDED_DEBUG_CURRENT_LOC TORCHINDUCTOR_WORKER_LOGPATH TORCH_DTRACE TORCH_LOGS
        TORCH_LOGS_FORMAT TORCH_LOGS_OUT TORCH_LOGS_TRACE_ID_FILTER TORCH_TRACE
    """,
    "what an error says": "TORCHDYNAMO_EXTENDED_ADVICE",
    "how many compile at once; excluded by Inductor as well": "TORCHINDUCTOR_COMPILE_THREADS",
    "where a cache of others lies, which is switched off": "TORCHINDUCTOR_REDIS_URL",
    "how compile processes start; excluded by Inductor as well": "TORCHINDUCTOR_WORKER_START",
    "a profile of the compiler": "TORCH_COMPILE_CPROFILE TORCH_COMPILE_DYNAMO_PROFILER",
    "where dumps go": "TORCH_COMPILE_DEBUG_DIR",
    "memory after a compile": "TORCH_DYNAMO_RUN_GC_AFTER_COMPILE",
    "whether a pool of compile processes is kept ready": "TORCH_TNT_IN_USE TORCH_WARM_POOL",
    "inside Meta only": "MAST_HPC_JOB_NAME ROLE_RANK",
    "Windows only": "ProgramFiles ProgramFiles(x86) WINDOWS_CUDA_HOME",
    "macOS only; where OpenMP lies": "CONDA_PREFIX OMP_PREFIX",
    "Intel's GPUs only": "LEVEL_ZERO_V1_SDK_PATH ONEAPI_ROOT",
    "where CUDA lies": "CUDACXX CUDA_HOME CUDA_PATH",
    "where files lie": "CPLUS_INCLUDE_PATH LD_LIBRARY_PATH TORCH_CUSTOM_PYTHONPATH",
    "read with TORCH_INDUCTOR_INSTALL_GXX only": "CONDA_EXE",
    "which GPUs there are: the target says which is used": "CUDA_VISIBLE_DEVICES",
    "its version is an ingredient": "CXX",
    "set by Inductor itself": "KMP_DUPLICATE_LIB_OK _TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
    "PyTorch's own tests": "PYTORCH_KEEP_TMPDIR",
    "another compiler": "TVM_SCHEDULER",
    "a tool that makes graphs smaller": "XLA_HLO_DEBUG",
    "a tool that splits graphs": """
        _SPLITTER_MERGE_OVERLAPPING_FUSIONS FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH
        FX_NET_ACC_SPLITTER_TRACKER_MODE FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES
    """,
}
UNWATCHED = frozenset(name for names in _EXCUSED.values() for name in names.split())


def watched(name: str) -> bool:
    """Whether a variable may change graphs or code, and is left to the user."""
    if name in FORCED or name in SET or name in UNWATCHED:
        return False
    if name in WATCHED:
        return True
    # A secret is nobody's setting. Imported here, as `hook/` loads this file where cachekit cannot be.
    from cachekit.redact.names import names_secret

    return name.startswith(WATCHED_PREFIXES) and not names_secret(name)


# Flags and options that reach no code. Name to reason; see `options.py`.
IRRELEVANT_OPTIONS = {
    "verbose": "logging",
    "quiet": "logging",
    "compile_threads": "how many compile at once; excluded by Inductor's own key",
    "worker_start_method": "how compile processes start; excluded by Inductor's own key",
    "verbose_progress": "progress bars",
    "debug": "logging",
    "fullgraph": "a graph that would be cut in two is an error; one that is not stays as it is",
}
IRRELEVANT_OPTION_PREFIXES = ("trace.",)
# But for this one, which Inductor adds to its key again (`FxGraphHashDetails.provenance_tracking_level`).
RELEVANT_OPTIONS = frozenset({"trace.provenance_tracking_level"})

# Files of a cache that are not results: locks, unfinished files, and the compiler's rubbish.
EPHEMERAL_PARTS = frozenset({"locks", "__pycache__"})
EPHEMERAL_SUFFIXES = (".lock", ".tmp", ".gch", ".o")
BINARY_SUFFIXES = (".so", ".cubin", ".hsaco", ".spv")
GRAPHS = "fxgraph"  # the folder with an entry for each graph: `fxgraph/<2 letters>/<key>/<digest>`
# Written as a compile begins, before the C++ compiler is called; a run that finds everything writes none.
SOURCE_SUFFIXES = (".cpp", ".cu", ".ttir")

BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
