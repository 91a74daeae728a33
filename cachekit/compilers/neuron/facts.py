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

# --- NEFF ---------------------------------------------------------------------------------------------------------

# A fixed header, then a tar, gzipped or plain [SDK: work-with-neff-files; every offset confirmed on FILES]. No magic.
NEFF_HEADER_SIZE = 1024
# Little-endian: package version, header size, data size, major, minor, build, cores, digest, UUID, name, cores asked
# for, cores on each node, feature bits, LNC; the rest is zero in all FILES.
NEFF_HEADER = "<5Q128sI32s16s256sI64sQI468x"
# Package version: the digest of the bytes after the header. 2 is in all FILES; 1 comes with a plain tar [SDK].
NEFF_DIGESTS = {1: "sha256", 2: "md5"}
NEFF_DIGEST_WORD = 4  # compilers from 2.18 on store each such part of the digest with its bytes in reverse [FILES]
NEFF_MAJOR = 2  # the newest that runtimes load [unofficial notes on libnrt 2.31]; 1 is trn1, 2 from 2.21 on [FILES]
# Members of the tar [FILES]. Paths may begin with "./", which the runtime strips [unofficial notes on libnrt 2.31].
NEFF_INFO = "info.json"  # tool_version: the compiler with its commit; name: what was given as --output
NEFF_GRAPH = "neff.json"  # inputs, outputs; absent where the packager found a kelf already [unofficial notes]
NEFF_KELF = re.compile(r"kelf-[0-9a-z]+\.json")  # kelf-0.json in FILES, kelf-a.json in the runtime's own sample
NEFF_DEFINITION = re.compile(r"(?:.+/)?(sg[0-9]+)/def\.json")  # one for each physical core
NEFF_TENSOR_MAP = re.compile(r"(?:.+/)?sg[0-9]+/tensor_map\.json")
NEFF_RANKS = "#rank_world_size"  # def.json: how many workers its collectives join; 0 without any [FILES]
# kelf's `target`. The first three in FILES, the rest as libnrt 2.31 and the compiler's tools know them [unofficial].
NEFF_TARGETS = {
    "sunda": "trn1",  # and inf2: one instruction set, which the file does not tell apart
    "cayman": "trn2",
    "mariana": "trn3",
    "v2": "trn1",
    "v3": "trn2",
    "v4": "trn3",
    "core_v4": "trn3",
    "tonga": "inf1",
    "inferentia": "inf1",
    "": "trn1",
    "*": "any",
}
NEFF_FEATURE_PREFIX = "neff_feature_"  # def.json's names of feature bits begin with it, most of them [FILES]
# A module's name within the path that the compiler was given as --output [FILES, SDK: neuron-packager].
NEFF_MODULE = re.compile(r"(?<![0-9A-Za-z_])(MODULE_[0-9a-f]+(?:\+[0-9a-f]{8})?)(?![0-9A-Za-z_+])")

# --- limits -------------------------------------------------------------------------------------------------------

MEMORY_PER_COMPILE = 64 << 30  # bytes; npc's default is one process for each such part of the memory [SDK]
EXTRACT_STEPS = 10  # AWS: "limit to 10-15 steps"
