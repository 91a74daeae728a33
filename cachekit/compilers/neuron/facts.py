"""Everything that is assumed of AWS Neuron, in one place: paths, variables, files, words in logs, limits.

Nobody here has run Neuron's compiler or a Trainium device; each value comes from documentation, public code or real
files and logs, named beside it. Where a real instance differs, the correction is one edit in this module;
`cachekit doctor --neuron-contract` finds what differs. Sources: SDK = aws-neuron/aws-neuron-sdk's documentation, ON =
huggingface/optimum-neuron's code, LOG = a real log of a trn1.2xlarge with SDK 2.31, FILES = real NEFFs of six compiler
builds, DERIVED = worked out from published samples.
"""

from __future__ import annotations

import re

# --- packages and tools ------------------------------------------------------------------------------------------

# What makes Neuron's toolchain; the version of each reaches graphs or code. The first three must import.
COMPILER_PACKAGE = "neuronx-cc"
FRAMEWORK_PACKAGE = "torch-neuronx"
XLA_PACKAGE = "libneuronxla"
TOOLCHAIN_PACKAGES = ("neuronx-cc", "libneuronxla", "torch-neuronx", "torch-xla", "torch", "nki")
TRAINING_PACKAGES = ("neuronx-distributed", "optimum-neuron", "transformers")
COMPILER_MODULE = "neuronxcc"  # its __version__ carries "+<commit>", which the package's metadata may lack [ON]
FRAMEWORK_MODULE = "torch_neuronx"
# PyPI carries placeholders of these names that install and then fail to import (seen with pip).
PLACEHOLDERS = {
    "torch-neuronx": ("1.0",),
    "neuronx-cc": ("1.0", "1.0.post1"),
    "libneuronxla": ("1.0",),
    "neuronx-distributed": ("0.1",),
    "neuronx-distributed-training": ("1.0",),
    "neuronx-distributed-inference": ("0.1.0",),
    "nki": ("0.0.1",),
}
PACKAGE_INDEX = "https://pip.repos.neuron.amazonaws.com"  # [SDK: setup]

COMPILER = "neuronx-cc"  # looked up on PATH by the wrapper too: the environment's bin must be there [LOG]
PARALLEL_COMPILE = "neuron_parallel_compile"
NEURON_LS = ("neuron-ls", "/opt/aws/neuron/bin/neuron-ls")
NEURON_MONITOR = ("neuron-monitor", "/opt/aws/neuron/bin/neuron-monitor")
# Processes that show that something compiles on this host [LOG; ON cleanup.py looks for the first].
COMPILER_PROCESSES = ("neuronx-cc", "walrus_driver", "hlo2penguin", "neuron_parallel_compile")

# --- variables ----------------------------------------------------------------------------------------------------

CC_FLAGS = "NEURON_CC_FLAGS"
CACHE_URL = "NEURON_COMPILE_CACHE_URL"
EXTRACT_ONLY = "NEURON_EXTRACT_GRAPHS_ONLY"
NPC_RETRIES = "NEURON_PARALLEL_COMPILE_MAX_RETRIES"
NPC_IGNORE_SCRIPT_ERROR = "NEURON_IGNORE_TRAINING_SCRIPT_ERROR_AND_COMPILE"
NPC_DUMP_RESULTS = "NEURON_PARALLEL_COMPILE_DUMP_RESULTS"
TARGET_OVERRIDE = "NEURON_PLATFORM_TARGET_OVERRIDE"
LNC = "NEURON_LOGICAL_NC_CONFIG"
NUM_CORES = "NEURON_RT_NUM_CORES"
VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
# Change the lowering and so the graph's hash [SDK: torch-neuron-envvars]; ingredients wherever they are set.
GRAPH_VARIABLES = frozenset(
    """
    NEURON_FUSE_SOFTMAX NEURON_CUSTOM_SILU NEURON_TRANSFER_WITH_STATIC_RING_OPS
    NEURON_TRANSFER_ALL_PARAMETERS_WITH_STATIC_RING NEURON_LOGICAL_NC_CONFIG NEURON_PLATFORM_TARGET_OVERRIDE
    NEURON_FALL_BACK_TO_NULL_NEFF NEURON_FRAMEWORK_DEBUG XLA_USE_BF16 XLA_DOWNCAST_BF16 XLA_DISABLE_FUNCTIONALIZATION
    XLA_ENABLE_PARAM_ALIASING XLA_FLAGS XLA_IR_DEBUG XLA_HLO_DEBUG NKI_DEBUG_INFO BUCKET_CAP_MB
    ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB NEURON_RT_VIRTUAL_CORE_SIZE
    """.split()  # noqa: SIM905
)
# Network between nodes: what AWS's own launch scripts set [SDK: tutorials].
EFA_VARIABLES = {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_FORK_SAFE": "1"}

# --- the cache of torch-neuronx (libneuronxla), on disk -----------------------------------------------------------

DEFAULT_ROOT = "/var/tmp/neuron-compile-cache"  # noqa: S108 - AWS's choice [SDK: neuron-caching]
CACHE_DIR_FLAG = "--cache_dir"  # wins over the variable [SDK: neuron-caching]
NO_CACHE_FLAG = "--no_cache"
NESTED_ROOT = "neuron-compile-cache"  # late in 2023 npc wrote one level deeper [optimum-neuron PR 352]
COMPILER_DIRECTORY = re.compile(r"neuronxcc-(?P<version>[0-9][^/]*)")
OLD_COMPILER_DIRECTORY = re.compile(r"(?:USER_)?neuroncc-(?P<version>[0-9][^/]*)")  # before SDK 2.8
# PJRT graphs have an unsigned decimal, NxD and optimum-neuron 20 hex digits, exported models no flags [FILES, LOG].
MODULE_DIRECTORY = re.compile(r"MODULE_(?P<graph>[0-9a-f]+)(?:\+(?P<flags>[0-9a-f]{8}))?")

NEFF = "model.neff"
DONE = "model.done"
FAILURE_LOG = "model.log"
FLAGS_FILE = "compile_flags.json"
HLO_FILES = ("model.hlo_module.pb", "model.hlo_module.pb.gz", "model.hlo.pb")  # newest naming first
LOCK_SUFFIX = ".lock"
WRAPPED_NEFF = "wrapped_neff.hlo"  # beside the NEFF in NxDI's caches [a real S3 listing]
MODULE_PREFIX = "MODULE_"  # what a module's folder is called, whatever follows
REGISTRY_DIRECTORY = "0_REGISTRY"  # optimum-neuron's index, beside the modules of a compiler [ON]
# One for the whole root, held by the kernel while files are touched: no sign of a compile, and not ours [tracebacks].
ROOT_LOCK = "lock"
LOCAL_SCHEME = "file"
BUCKET_SCHEME = "s3"  # the only one that is documented [SDK: neuron-caching]
# optimum-neuron finds a cache folder in the flags with a pattern of these characters, and cuts it at any other, the
# dot first of all [ON cache_utils.get_neuron_cache_path, run].
PEER_PATH = re.compile(r"[\w/-]+", re.ASCII)
# How these two options are misspelled, optimum-neuron's own code among others; the wrapper reads none of it [ON].
MISSPELLED_OPTIONS = {"--cache-dir": "--cache_dir", "--no-cache": "--no_cache"}

# Native TorchNeuron (PyTorch 2.10 on): a flat, sharded tree of NEFFs whose key lacks the compiler's version. From an
# unofficial copy of its source: check these first on a real instance.
NATIVE_ROOT_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_DIR"
NATIVE_LOCAL = "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"
NATIVE_DISABLE = "TORCH_NEURONX_NEFF_DISABLE_CACHE"
NATIVE_SUFFIX = ".neff"

# Options that the wrapper takes for itself, before the flags are hashed [SDK; names from libncc.setup_args]. True:
# it has a value.
WRAPPER_OPTIONS = {
    "--cache_dir": True,
    "--no_cache": False,
    "--retry_failed_compilation": False,
    "--log_level": True,
    "--dump": True,
    "--compile_workdir": True,
}

# --- flags --------------------------------------------------------------------------------------------------------

# The hash of a module's flags is the first digits of an MD5, over one of three texts [DERIVED; 13 published keys]:
# up to SDK 2.19 the flags joined by blanks; in 2.20.0 their JSON; from 2.20.1 on their JSON with the target in front.
# Not verified for libneuronxla 3.0.
FLAGS_HASH_DIGITS = 8
TARGET_OPTION = "--target"
TARGETS = ("trn1", "trn1n", "inf2", "trn2", "trn2n", "trn2u", "trn3", "trn3u")  # [SDK: neuronx-cc; trn3: quickstart]
OUTPUT_OPTION = "--output"  # in the compiler's command line, what follows its value is what is hashed [LOG]
OPTION_SYNONYMS = {"-O": "--optlevel", "-lnc": "--logical-nc-config"}  # [SDK: neuronx-cc]
# Given by a user they reach the hash, although they change no code: work directories make keys of one machine [NxDI].
LEAKING_OPTIONS = ("--logfile", "--verbose", "--workdir")

# --- NEFF ---------------------------------------------------------------------------------------------------------

NEFF_HEADER_SIZE = 1024
NEFF_TARGETS = {"sunda": "trn1", "cayman": "trn2", "mariana": "trn3"}  # kelf-0.json's `target` [FILES]

# --- logs ---------------------------------------------------------------------------------------------------------

# What the telling lines of a failed compile's log contain [LOG; sdk issues 706, 1369; samples issue 94].
ERROR_MARKS = ("[ERROR]", "ERROR", "NCC_E", "NCC_I", "[F137]", "forcibly killed", "Non-signal exit", "Killed")

# --- limits -------------------------------------------------------------------------------------------------------

MEMORY_PER_COMPILE = 64 << 30  # bytes; npc's default is one process for each such part of the memory [SDK]
EXTRACT_STEPS = 10  # AWS: "limit to 10-15 steps"
# A lock younger than this may belong to a compile that has not started its process yet, or is copying its NEFF.
LOCK_SETTLED = 120.0  # seconds; ours
# Mapped by a process that uses Neuron's cache from inside: it may hold a lock while no compiler process runs.
CACHE_LIBRARIES = ("libneuronxla", "libneuronpjrt")
