"""Everything that is assumed of AWS Neuron, in one place: paths, variables, files, words in logs, limits.

Nobody here has run Neuron's compiler or a Trainium device; each value comes from documentation, public code or real
files and logs, named beside it. Where a real instance differs, the correction is one edit in this module;
`cachekit doctor --neuron-contract` finds what differs. Sources: SDK = aws-neuron/aws-neuron-sdk's documentation, ON =
huggingface/optimum-neuron's code, LOG = a real log of a trn1.2xlarge with SDK 2.31, FILES = real NEFFs of six compiler
builds, DERIVED = worked out from published samples.
"""

from __future__ import annotations

import re
from typing import Any

from cachekit.compilers.neuron import presence

# --- packages and tools ------------------------------------------------------------------------------------------
# Compilers of releases whose keys depend on the path of the Python environment, by SDK; fixed in 2.19.1 and 2.20.1
# [SDK: release notes; the compilers' versions from public scripts that install these releases].
KEY_BUGS = {"2.14.213.0": "2.19.0", "2.15.128.0": "2.20.0"}
# What makes Neuron's toolchain; the version of each reaches graphs or code. The first three must import.
COMPILER_PACKAGE = "neuronx-cc"
FRAMEWORK_PACKAGE = presence.FRAMEWORK_PACKAGE
XLA_PACKAGE = "libneuronxla"
TOOLCHAIN_PACKAGES = ("neuronx-cc", "libneuronxla", "torch-neuronx", "torch-xla", "torch", "nki")
LITE_PACKAGE = "libtorch-neuronx-lite"  # of vLLM on Trn2 and Trn3, SDK 2.30 to 2.32; no training [SDK: n2-manifest]
# What says that an environment without torch-neuronx is for something else: a package, from which version on, and what
# it is for [SDK: n2-manifest, release notes of JAX].
OTHER_WORK = (
    (LITE_PACKAGE, "", "serves models and trains none; SDK 2.30 to 2.32 have it for vLLM on Trn2 and Trn3"),
    (XLA_PACKAGE, "3", "is JAX's (cachekit run --compiler jax); nobody is known to train with it and PyTorch"),
)
# By the words for a system in its os-release. AWS's own repository of system packages must be set up for it, as the
# page says [SDK: setup; apt.repos. and yum.repos.neuron.amazonaws.com, `dnf` on Amazon Linux 2023].
SYSTEM_INSTALL = {"debian": "sudo apt-get install -y", "fedora": "sudo dnf install -y"}
DRIVER, TOOLS = "aws-neuronx-dkms && sudo modprobe neuron", "aws-neuronx-tools"
SYSTEMS = {
    "debian": "debian", "ubuntu": "debian", "amzn": "fedora", "fedora": "fedora", "rhel": "fedora", "centos": "fedora",
}  # fmt: skip
SETUP_PAGE = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/setup/index.html"
REPOSITORY = f"the package is in AWS's own repository: {SETUP_PAGE}"  # for apt or yum [SDK: setup]
NATIVE_FIRST = "2.10"  # of torch-neuronx: 2.9 is the last on PyTorch/XLA [SDK: release notes of 2.28]
XLA_FRAMEWORK = "torch-xla"
XLA_PACKAGES = ("libneuronxla", XLA_FRAMEWORK)  # of the toolchain what only XLA needs
TRAINING_PACKAGES = ("neuronx-distributed", "optimum-neuron", "transformers")
# What must be importable, by package, for Neuron to be there.
COMPILER_MODULE = presence.COMPILER_MODULE
PACKAGE_MODULES = {"neuronx-cc": COMPILER_MODULE, "libneuronxla": "libneuronxla", "torch-neuronx": "torch_neuronx"}
# And, where they are installed, what torch-neuronx stands on, which is not Neuron's own.
BELOW_MODULES = {"torch": "torch", XLA_FRAMEWORK: "torch_xla"}
FRAMEWORK_MODULE = "torch_neuronx"
# PyPI carries placeholders, which install and fail to import (seen with pip). A lower version may be a real one: SDK
# 2.8 had libneuronxla 0.5.101, with torch-neuronx 1.13 (a public `pip list`).
PLACEHOLDERS = {
    "torch-neuronx": "1.0", "neuronx-cc": "1.0.post1", "libneuronxla": "1.0", "neuronx-distributed": "0.1",
    "nki": "0.0.1",
}  # fmt: skip
# What splits a model over cores; from 0.4 on its trainer and models are as they are used here [ON 0.4.5].
SPLITTER, FIRST_SPLITTER = "optimum-neuron", "0.4"
SPLIT_PACKAGES = (SPLITTER, "neuronx-distributed")
LORA_PACKAGE = "peft"
PACKAGE_INDEX = "https://pip.repos.neuron.amazonaws.com"  # [SDK: setup]
# Versions of two packages of which no environment holds both: from these on, before these (empty is any), and why. Of
# two stacks one needs an environment of its own; else the registry's table says what goes with torch-neuronx.
TWO_STACKS = "these belong to two stacks, and no environment holds both"
Part = tuple[str, str, str]
Pair = tuple[Part, Part, str]
NOT_TOGETHER: tuple[Pair, ...] = (
    (("torch-neuronx", NATIVE_FIRST, ""), (XLA_FRAMEWORK, "", ""), TWO_STACKS),
    (("torch-neuronx", NATIVE_FIRST, ""), ("libneuronxla", "", "3"), TWO_STACKS),  # 3.x may be JAX's
    (("torch-neuronx", "", ""), (LITE_PACKAGE, "", ""), TWO_STACKS),
    (
        ("torch-neuronx", "2.9", "2.10"), ("libneuronxla", "3", ""),
        "torch-neuronx 2.9 was released with libneuronxla 2.2; 3.x is JAX's, and nobody is known to train with both",
    ),
)  # fmt: skip
# Likewise, of versions that load, and that somebody saw fail: they are used, with a warning.
REPORTED: tuple[Pair, ...] = (
    (
        ("torch-neuronx", "2.9", "2.10"), ("neuronx-cc", "2.27", ""),
        "every graph of a transformer ended in NCC_ISMP902 (2026-09); AWS's page of 2.32 has the two, that of 2.33 not",
    ),
    (
        ("nki", "0.6", ""), ("neuronx-cc", "2", "2.27"),
        "neuronx-cc 2.25 refused the kernels of nki 0.6 (NCC_INLA001, 2026-09), which is of 2.27: empty NKI's folder",
    ),
    (("transformers", "", "5"), ("torch-neuronx", NATIVE_FIRST, ""), "its Trainer knows this device from version 5 on"),
)  # fmt: skip
DRIVER_AGAIN = "sudo modprobe -r neuron && sudo modprobe neuron"
# A container gets them so, from a shell of the machine that has them.
CONTAINER_DEVICES = "docker run $(printf -- '--device=%s ' /dev/neuron[0-9]*) IMAGE"
ISSUES = "https://github.com/aws-neuron/aws-neuron-sdk/issues"
ERROR_CODES_PAGE = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/compiler/error-codes/index.html"
COMPILER = "neuronx-cc"  # looked up on PATH by the wrapper too: the environment's bin must be there [LOG]
COMPILE_COMMAND = (COMPILER, "compile", "--framework=XLA")  # then graph, --output, flags [LOG; SDK: neuronx-cc]
COMPILE_VERBOSITY = "--verbose=35"  # what the wrapper appends; not hashed [LOG]
PARALLEL_COMPILE = "neuron_parallel_compile"
NPC_PARALLEL_OPTION = "--num_parallel"
NEURON_LS = presence.NEURON_LS  # likewise
# Processes that show that something compiles on this host [LOG; ON cleanup.py looks for the first].
COMPILER_PROCESSES = ("neuronx-cc", "walrus_driver", "hlo2penguin", "neuron_parallel_compile")

# --- variables ----------------------------------------------------------------------------------------------------
CC_FLAGS = "NEURON_CC_FLAGS"
CACHE_URL = "NEURON_COMPILE_CACHE_URL"
EXTRACT_ONLY = "NEURON_EXTRACT_GRAPHS_ONLY"
NPC_RETRIES = "NEURON_PARALLEL_COMPILE_MAX_RETRIES"
NPC_IGNORE_SCRIPT_ERROR = "NEURON_IGNORE_TRAINING_SCRIPT_ERROR_AND_COMPILE"
TARGET_OVERRIDE = "NEURON_PLATFORM_TARGET_OVERRIDE"
LNC = "NEURON_LOGICAL_NC_CONFIG"
LNCS = ("1", "2")  # [SDK: logical-neuroncore-config]
NUM_CORES = "NEURON_RT_NUM_CORES"  # 1 to all of the system, 0 is all [SDK: neuron-runtime configuration]
# One, or a range, `0-3` [SDK]; lists of both. torch-xla gives each worker one, and wants as many as there are workers,
# each once [torch-xla 2.9: _internal/neuron_utils.py]. TorchNeuron gives a worker the core of its number where this is
# not set; where it is, a worker that sees several ends with an error [TN: distributed/backend.py].
VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
# Change the lowering and so the graph's hash [SDK: torch-neuron-envvars]; ingredients wherever they are set.
GRAPH_VARIABLES = frozenset(
    """
    NEURON_FUSE_SOFTMAX NEURON_CUSTOM_SILU NEURON_TRANSFER_WITH_STATIC_RING_OPS
    NEURON_TRANSFER_ALL_PARAMETERS_WITH_STATIC_RING NEURON_LOGICAL_NC_CONFIG NEURON_PLATFORM_TARGET_OVERRIDE
    NEURON_FALL_BACK_TO_NULL_NEFF NEURON_FRAMEWORK_DEBUG XLA_USE_BF16 XLA_DOWNCAST_BF16 XLA_DISABLE_FUNCTIONALIZATION
    XLA_ENABLE_PARAM_ALIASING XLA_FLAGS XLA_IR_DEBUG XLA_HLO_DEBUG NKI_DEBUG_INFO BUCKET_CAP_MB
    ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB NEURON_RT_VIRTUAL_CORE_SIZE NKI_COMPILE_CACHE_URL
    """.split()  # noqa: SIM905
)
# Of the runtime, after compilation: they reach no graph [SDK: neuron-runtime configuration]. Cores are an ingredient of
# their own.
RUNTIME_VARIABLES = frozenset({
    "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS", "NEURON_RT_EXEC_TIMEOUT", "NEURON_RT_LOG_LEVEL", NUM_CORES,
    VISIBLE_CORES,
})  # fmt: skip
# Network between nodes, where the user has not set them [SDK: setup-trn1-multi-node-execution; nrt-troubleshoot]. The
# last one matters on kernels before 5.15 alone, where the runtime refuses several nodes without it. Whether
# torch-neuronx makes NEURON_RT_ROOT_COMM_ID of torchrun's MASTER_ADDR by itself is unknown: we have no source for it.
EFA_VARIABLES = {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_FORK_SAFE": "1"}

# --- models that are split over cores, by optimum-neuron ------------------------------------------------------------
# Architectures that it can split, and whether into a pipeline too [ON 0.4.5: models/training/auto_models.py, and
# SUPPORTS_PIPELINE_PARALLELISM of each model].
SPLIT_MODELS = {"llama": True, "qwen3": True, "granite": False}
# Of these, the ones whose embedding and head are split by words as well [ON: modeling_llama.py, modeling_granite.py].
SPLIT_VOCABULARIES = frozenset(("llama", "qwen3"))
SPLIT_TASKS = ("causal-lm", "instruction-tuning")  # its `text-generation`
SPLIT_OPTIMIZERS = ("adamw_torch", "sgd")  # [ON: NeuronTrainer.get_optimizer_cls_and_kwargs]
# What of a config is cut into equal parts [ON: modeling_llama.py]; heads that keys and values share may be repeated.
SPLIT_WIDTHS = ("num_attention_heads", "intermediate_size")
VOCABULARY = "vocab_size"
SHARED_HEADS = "num_key_value_heads"
# Lengths that NKI's attention takes: "only support sequence as multiples of 2K" [neuronx-distributed:
# kernels/flash_attn.py]. optimum-neuron tests all its models with it at 2048, and has plain attention in its example
# at 512 [ON: test_overfit.py, finetune_qwen3.py].
FLASH_MULTIPLE = 2048
# Change the graphs of its trainer, beside GRAPH_VARIABLES [ON: accelerate/accelerator.py, accelerate/state.py].
SPLIT_VARIABLES = frozenset({
    "ALL_GATHER_REDUCE_SCATTER_BUCKET_CAP_MB", "NEURON_RT_STOCHASTIC_ROUNDING_EN",
    "OPTIMUM_NEURON_COMMON_FLAGS_MODEL_TYPE",
})  # fmt: skip

# --- the cache of torch-neuronx (libneuronxla), on disk -----------------------------------------------------------
DEFAULT_ROOT = "/var/tmp/neuron-compile-cache"  # noqa: S108 - AWS's choice [SDK: neuron-caching]
CACHE_DIR_FLAG = "--cache_dir"  # wins over the variable [SDK: neuron-caching]
NO_CACHE_FLAG = "--no_cache"
COMPILER_DIRECTORY_PREFIX = "neuronxcc-"
# The characters of a Python version, and no others: such names go into records, URLs and terminals.
COMPILER_DIRECTORY = re.compile(r"neuronxcc-(?P<version>[0-9][0-9A-Za-z.+_-]{0,99})")
# PJRT graphs have an unsigned decimal, NxD and optimum-neuron 20 hex digits, exported models no flags [FILES, LOG].
MODULE_DIRECTORY = re.compile(r"MODULE_(?P<graph>[0-9a-f]+)(?:\+(?P<flags>[0-9a-f]{8}))?")
NEFF = "model.neff"
DONE = "model.done"
FAILURE_LOG = "model.log"
FLAGS_FILE = "compile_flags.json"
HLO_FILES = ("model.hlo_module.pb", "model.hlo_module.pb.gz", "model.hlo.pb")  # newest naming first
LOCK_SUFFIX = ".lock"
WRAPPED_NEFF = "wrapped_neff.hlo"  # beside the NEFF in NxDI's caches [a real S3 listing]
# All that belongs to a finished module; what else lies in its folder is somebody's own.
MODULE_FILES = frozenset((NEFF, DONE, FLAGS_FILE, WRAPPED_NEFF, *HLO_FILES))
# What optimum-neuron fetches from its Hub cache and links into a module [ON hub_cache.py].
LINKED_FILES = frozenset((NEFF, DONE))
MODULE_PREFIX = "MODULE_"
REGISTRY_DIRECTORY = "0_REGISTRY"  # optimum-neuron's index, beside the modules of a compiler [ON]
# One for the whole root, held by the kernel while files are touched: no sign of a compile, and not ours [tracebacks].
ROOT_LOCK = "lock"
BUCKET_SCHEME = "s3"  # beside `file`, the only one that is documented [SDK: neuron-caching]
# optimum-neuron cuts a cache folder in the flags at any other character, the dot first of all [ON cache_utils].
PEER_PATH = re.compile(r"[\w/-]+", re.ASCII)
# How these two options are misspelled, optimum-neuron's own code among others; the wrapper reads none of it [ON].
MISSPELLED_OPTIONS = {"--cache-dir": "--cache_dir", "--no-cache": "--no_cache"}
RETRY_FLAG = "--retry_failed_compilation"  # has remembered failures compiled again, all that a run meets
LOG_LEVEL_FLAG = "--log_level"
# Options that the wrapper takes for itself, before the flags are hashed [SDK; names from libncc.setup_args], and
# whether they have a value.
WRAPPER_OPTIONS = {
    CACHE_DIR_FLAG: True, NO_CACHE_FLAG: False, RETRY_FLAG: False, LOG_LEVEL_FLAG: True, "--dump": True,
    "--compile_workdir": True,
}  # fmt: skip
TELLING_LEVELS = frozenset({"DEBUG", "INFO"})  # at others the wrapper's lines are missing, which npc reads too [SDK]

# --- the cache of native TorchNeuron, on disk -----------------------------------------------------------------------
# TorchNeuron is torch-neuronx without XLA: a public beta since SDK 2.33 (2.13.3.0, 2.14.3.0), 2.10 to 2.12 were private
# ones. [TN] is an unofficial copy of its source of April 2026, [SDK: torch] AWS's own pages of October 2026. Nobody
# here has run any of it: check it first on a real instance.
NATIVE_EXPERIMENTAL = (
    "TorchNeuron is experimental: where it keeps its cache and how it counts is known from an unofficial copy of its "
    "source, and nobody has run cachekit with it"
)
NATIVE_CHIPS = frozenset({"trn2", "trn3"})  # [SDK: torch]
NATIVE_PACKAGES = (COMPILER_PACKAGE, FRAMEWORK_PACKAGE)  # it needs no libneuronxla [TN]
# <root>/ab/cd/<32 hex>.neff. The name is a digest of the graph, its inputs and outputs, target, LNC, level of
# optimization and flags. The compiler's version is not in it [TN].
NATIVE_ROOT_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_DIR"  # read once, at the first compile [SDK: neuron-explorer; TN]
NATIVE_DEFAULT_ROOT = "/tmp/neff_cache"  # noqa: S108 - AWS's choice [SDK: neuron-explorer; TN]
NATIVE_SUFFIX = ".neff"  # written as `.tmp.XXXXXX` beside it, and renamed: what has this name is whole [TN]
# What a graph is called in a folder that somebody names to be imported; in a run's own folder any name will do [TN].
NATIVE_NAME = re.compile(r"[0-9a-f]{16,64}\.neff")
# Has `locks/<key>.lock` and no NEFF: locks of the kernel's, which end with their owner. By default one folder for all
# processes of a host, whatever their compiler [TN].
NATIVE_LOCAL = "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR"
# The code's name of it, and its document's [TN].
NATIVE_DISABLE = ("TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE")
# How tensors get there, and how torch.compile is called; shapes must be fixed [SDK: torch].
NATIVE_TO: dict[str, Any] = {"device": "neuron"}
NATIVE_COMPILE: dict[str, Any] = {"backend": "neuron", "dynamic": False}
# Counters of its cache, in each process; None until they count. Off by default [TN].
NATIVE_METRICS = "TORCH_NEURONX_METRICS_ENABLED"
NATIVE_METRICS_MODULE = "torch_neuronx.metrics"  # get_counter_value(name), set_enabled(True)
NATIVE_COUNTERS = {"found": "CompilationCache.PersistentHits", "compiled": "CompilationCache.TotalCompilations"}
NATIVE_LEVEL = "NEURON_COMPILER_OPT_LEVEL"  # an option as the compiler gets it, `-O2` [TN: KernelExecution.cpp]
# Folders of what are not NEFFs, by default shared by all processes of a host, whatever their compiler [SDK: torch; TN].
NATIVE_BESIDE = (
    "TORCH_NEURONX_DEBUG_DIR", "TORCH_NEURONX_HLO_CACHE_DIR", "TORCH_NEURONX_METRICS_DIR", "TORCHINDUCTOR_CACHE_DIR",
)  # fmt: skip
# Of these, where lie lowered graphs, which are compiled, and pickles, which run when they are loaded.
NATIVE_LOADED = frozenset({"TORCH_NEURONX_HLO_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"})
# A graph that does not compile is an error, and never runs op by op instead: a trial would end well without it. True by
# default since SDK 2.33, before that False [SDK: torch env-vars, 2026-10-14; TN].
NATIVE_NO_FALLBACK = "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"
# Graphs are compiled for what TARGET_OVERRIDE names, and never run. AWS names such a mode, and a fork of vLLM's has it
# with 2.12.3; whether all of it loads without the runtime, and a training step comes to its end, is not known.
NATIVE_COMPILE_ONLY = "TORCH_NEURONX_COMPILE_ONLY"
NATIVE_WITHOUT_DEVICE = (
    f"no device here ({NATIVE_COMPILE_ONLY}=1, experimental): graphs are compiled, not run. A host with devices has "
    "another key, and its warm begins with what this one compiled if as many workers train there: "
    "--set parallel.data_parallel_size=N says here how many"
)
# The compiler itself needs none [aws-neuron-sdk#942, 2024-08-09], and `torch_neuronx.trace(cpu_backend=True)` makes the
# graph of a model on a CPU [optimum-neuron#961, 2025-09-11]. A training traces on an XLA device, whose client ended in
# `PJRT_Client_Create … !(num_devices > 0)` without one: "a Neuron device is currently required for torch 2.x
# compilation. This constraint may be removed" [AWS in aws-neuron-sdk#910, 2024-06-18].
XLA_WITHOUT_DEVICE = (
    "no device here: the compiler needs none, but nobody has shown that torch-neuronx traces a training without one. "
    "AWS said in June 2024 that PyTorch 2 needs a device for that (aws-neuron-sdk#910); if that still holds, the trial "
    "run ends at its start, and nothing is stored"
)
# From 0.6 on NKI keeps lowered kernels across processes where the first is 1, as in TorchNeuron's image; a stale one
# replays an earlier session's path. Entries are of one checkout by design, and not carried [public copy of nki; AWS's
# guides].
NKI_NO_TRACE_CACHE = {"NKI_ENABLE_TRACE_CACHE": "0", "NKI_DISABLE_TRACE_CACHE": "1"}
NKI_PACKAGE = "nki"
# Its folder of compiled kernels, one for all compilers, to which it lets every user write. Graphs name the kernels by
# their absolute paths, and the compiler reads them there [SDK: NCC_EVRF059; a fork of vllm-neuron; public scripts].
NKI_COMPILE_CACHE, NKI_DEFAULT_FOLDER = "NKI_COMPILE_CACHE_URL", "/var/tmp/nki-intermediate-cache"  # noqa: S108
# The same in every shell: its path is in graphs, and so in keys.
NKI_OWN_FOLDER = f'export {NKI_COMPILE_CACHE}="$HOME/.cache/nki-intermediate-cache"'
# The call of a kernel in a graph: JSON in base64, `{"klir_binary": {"binary": "/var/tmp/…"}, …}`; `eyJ` is `{"`. Those
# of older releases have the kernel itself in them [a fork of vllm-neuron; a third party's reader of graphs].
KERNEL_CALL = b"AwsNeuronCustomNativeKernel"
KERNEL_CONFIG = re.compile(rb"eyJ[A-Za-z0-9+/]{32,}={0,2}")
KERNEL, KERNEL_PATH = "klir_binary", "binary"
KERNEL_LONGEST = 1024  # characters of a path; ours
KERNEL_PART = 255  # bytes of a name, of which Linux takes no more
KERNEL_LARGEST = 256 << 20  # bytes; ours
KERNEL_LACKING = ".lacking"  # how the empty file's name ends that a module has in the place of one; ours
KERNEL_FILE = re.compile(r"kernel-[0-9a-f]{32}(?:\.lacking)?")  # as a module has it; ours
# Variables of its own that affect no graph; all others of this prefix are taken to reach them [SDK: torch; TN].
NATIVE_PREFIX = "TORCH_NEURONX_"
NATIVE_QUIET = frozenset({
    NATIVE_ROOT_VARIABLE, NATIVE_LOCAL, *NATIVE_DISABLE, NATIVE_METRICS, *NATIVE_BESIDE, NATIVE_NO_FALLBACK,
    NATIVE_COMPILE_ONLY,
    "TORCH_NEURONX_ENABLED_METRIC_TABLES", "TORCH_NEURONX_LOG_LEVEL", "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT",
    "TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS",
})  # fmt: skip
# Of the compiler's, of collectives and of XLA's that reach its graphs or its key [SDK: torch; TN].
NATIVE_GRAPH_VARIABLES = frozenset(
    f"""
    {NATIVE_LEVEL} NEURON_LOGICAL_NC_CONFIG NEURON_PLATFORM_TARGET_OVERRIDE NEURON_RT_VIRTUAL_CORE_SIZE
    NEURON_USE_SPLIT_ALLGATHER NEURON_USE_SPLIT_REDUCE_SCATTER COLLECTIVE_BUCKETSIZE_IN_MB COLLECTIVE_MIN_BUCKETS
    NKI_DEBUG_INFO NKI_COMPILE_CACHE_URL XLA_IR_DEBUG XLA_HLO_DEBUG
    """.split()
)

# --- the cache of vLLM-Neuron on libtorch-neuronx-lite ----------------------------------------------------------------
# <root>/neuron/compile_cache/<MD5>/graph_<hash>.neff; what else is there is what it was compiled from. The mark comes
# last, `completed:<time>`, `neff_size:<bytes>`, and is all that makes a hit [SDK: vllm-neuron; a third party's code, on
# 0.21 and 0.24]. Later releases may have a folder for each rank.
LIBTORCH_ROOT = "NEURON_LIBTORCH_CACHE_ROOT"
VLLM_ROOTS = {"VLLM_CACHE_ROOT": "~/.cache/vllm", LIBTORCH_ROOT: "~/.cache/neuron_libtorch"}
VLLM_FOLDER = "neuron/compile_cache"
VLLM_ENTRY = re.compile(r"[0-9a-f]{32}")
VLLM_MARK, VLLM_GRAPH = ".compilation_complete", "graph_*.neff"
VLLM_SIZE = re.compile(r"^neff_size:(?P<size>\d{1,15})$", re.MULTILINE)

# --- flags --------------------------------------------------------------------------------------------------------
# Of an MD5 over the flags' JSON with the target in front, from SDK 2.20.1 on [DERIVED; 6 published keys]; before, over
# their JSON alone, or joined by blanks. Not verified for libneuronxla 3.0.
FLAGS_HASH_DIGITS = 8
TARGET_OPTION = "--target"
LNC_OPTION = "--logical-nc-config"
OUTPUT_OPTION = "--output"  # in the compiler's command line, what follows its value is what is hashed [LOG]
# [SDK: neuronx-cc]
OPTION_SYNONYMS = {"-O": "--optlevel", "-lnc": LNC_OPTION, "--lnc": LNC_OPTION}
GLUED_OPTIONS = ("-O", "-lnc")  # a number may follow these without anything between: `-O1`
# Their value may begin with a dash: `--tensorizer-options --enable-ccop-compute-overlap` [issues and logs].
OPTIONS_OF_PARTS = re.compile(r"--[a-z0-9-]+-options")
# They reach the hash and change no code: work directories make keys of one machine [NxDI].
LEAKING_OPTIONS = ("--logfile", "--verbose", "--workdir")

# --- NEFF ---------------------------------------------------------------------------------------------------------
# A fixed header, then a tar, gzipped or plain [SDK: work-with-neff-files; every offset confirmed on FILES]. No magic.
NEFF_HEADER_SIZE = 1024
# Little-endian: package version, header size, data size, major, minor, build, cores, digest, UUID, name, cores asked
# for, cores on each node, feature bits (a runtime refuses one that is newer than itself [sdk#820]), LNC; then zeros.
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
NEFF_RANKS = "#rank_world_size"  # def.json: how many workers its collectives join; 0 without any [FILES]
# kelf's `target`. The first three in FILES, the rest as libnrt 2.31 and the compiler's tools know them [unofficial].
# trn1 is inf2 as well: one instruction set, which the file does not tell apart.
NEFF_TARGETS = {
    "sunda": "trn1", "cayman": "trn2", "mariana": "trn3",
    "v2": "trn1", "v3": "trn2", "v4": "trn3", "core_v4": "trn3", "tonga": "inf1", "inferentia": "inf1", "": "trn1",
    "*": "any",
}  # fmt: skip
# The chip of each target that the compiler knows, in the same words. A new chip: its target here, what its kelfs say
# above [SDK: neuronx-cc; quickstart].
TARGET_CHIPS = {
    "trn1": "trn1", "trn1n": "trn1", "inf2": "trn1", "trn2": "trn2", "trn2n": "trn2", "trn2u": "trn2",
    "trn3": "trn3", "trn3u": "trn3",
}  # fmt: skip
TARGETS = tuple(TARGET_CHIPS)
ANY_CHIP = "any"
NEFF_LNC_IS_REQUIRED = True  # it must be that of the process that loads the NEFF [SDK: logical-neuroncore-config]
NEFF_FEATURE_PREFIX = "neff_feature_"  # of most of def.json's names of feature bits [FILES]
# A module's name within the path that the compiler was given as --output [FILES, SDK: neuron-packager]; where there is
# one, it is the module that the NEFF lies in [FILES: one].
NEFF_MODULE = re.compile(r"(?<![0-9A-Za-z_])(MODULE_[0-9a-f]+(?:\+[0-9a-f]{8})?)(?![0-9A-Za-z_+])")
# Families of instances by the compiler's target: trn1n has trn1's chip, trn2u and trn2n have trn2's [ON; TorchNeuron].
TARGET_FAMILIES = {"trn1": "trn1", "trn2": "trn2", "trn3": "trn3", "inf2": "inf2"}
# Cores of one chip as frameworks see them by default, where neuron-ls does not list them [SDK: architecture pages].
CORES_OF_CHIP = {"trn1": 2, "inf2": 2, "trn2": 4, "trn3": 4}
DEFAULT_LNC = {"trn2": 2, "trn3": 2}  # physical cores in a logical one; 1 before [SDK: logical-neuroncore-config]

# --- limits -------------------------------------------------------------------------------------------------------
MEMORY_PER_COMPILE = 64 << 30  # bytes; npc's default is one process for each such part of the memory [SDK]
COMPILE_TIMEOUT = 4 * 3600.0  # seconds for one graph: "up to one hour for large models" [ON], and then some; ours
EXIT_TIMEOUT = 120.0  # seconds of silence after a worker's last word until it counts as hanging at exit; ours
# A lock younger than this may belong to a compile that has not started its process yet, or is copying its NEFF.
LOCK_SETTLED = 120.0  # seconds; ours
OUR_FOLDER = ".cachekit"  # in the compiler cache dir, for what cachekit itself must remember there

# --- words in logs ------------------------------------------------------------------------------------------------
# How a line of the wrapper or of npc starts. `2026-07-29 17:19:00.000611:  10142  [INFO]: ` [LOG]; before (to SDK 2.2x)
# `2024-01-11 05:53:27.000203:  741529  INFO ||NEURON_CC_WRAPPER||: ` [sdk#819, optimum-neuron#407]; to SDK 2.13 without
# the process, with `||NCC_WRAPPER||` [SDK: neuron-caching]. A line may hold several, glued, after anything.
LOG_HEADER = re.compile(
    r"(?:(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?:?\s{1,8})?"
    r"(?:(?P<pid>\d{1,10})\s{1,8})?"
    r"(?:\[(?P<level>[A-Z]{4,8})\]|(?P<word>[A-Z]{4,8})\s{1,4}\|\|(?P<source>[A-Z_]{3,40})\|\|):\s?"
)
LOG_HEADER_END = re.compile(r"(?:[A-Z]\]|\|\|):")
LOG_HEADER_LONGEST = 128  # characters
# Six digits that are milliseconds, padded with zeros: in both formats no published line has more than 000999. Six
# digits from 1000 on are taken as microseconds.
LOG_FRACTION_IS_MILLISECONDS = 1000
# Who said it, in front of a line: torchrun (`[rank0]:`, `[default0]:`), vLLM (`(EngineCore_DP0 pid=37707) `), Ray
# (`(RayTrainWorker pid=31, ip=10.0.0.7) `, colours without escape: `[36m`), Open MPI (`[1,0]<stdout>:`), srun (`0: `).
LOG_PREFIX = re.compile(
    r"\s{0,8}(?:\[\d{1,3}m)?(?:\[(?:rank|default|trainer|worker)_?(?P<rank>\d{1,6})\]:?"
    r"|\((?P<worker>[^()\s]{0,80})\s?pid=(?P<pid>\d{1,10})[^()]{0,80}\)"
    r"|\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err)>:"
    r"|(?P<label>\d{1,5}):(?=\s))(?:\[0m)?\s?"
)
# A module's name inside other text: a path, a file `model.MODULE_1+f7f529f3.hlo_module.pb`, a sentence.
MODULE_IN_TEXT = re.compile(r"(?P<module>MODULE_[0-9a-f]+(?:\+[0-9a-f]{8})?)(?![0-9A-Za-z_])")
COMPILER_IN_TEXT = re.compile(r"(?:neuronxcc|(?:USER_)?neuroncc)-\d[^/\s]*")
# What libneuronxla's wrapper, npc, optimum-neuron and torchrun say: kind of event -> pattern with its fields `path`,
# `text`, and numbers. A pattern that ends in `.*` takes the rest of its line, which may quote an older log [sdk#881].
LOG_WORDS = {
    "hit": re.compile(
        r"Using a cached neff at (?P<path>.{1,4096}?\.neff)\b(?:\.? ?Exiting with a successfully compiled graph\.?)?"),
    # "… Will skip compilation, please set --retry_failed_compilation for recompilation" [SDK], or RETRYING
    "cached-failure": re.compile(
        r"Got a cached failed neff at (?P<path>.{1,4096}?\.neff)\b\.?"
        r"(?: Will skip compilation,[^\n]{0,80}?recompilation[.:]?)?(?P<text>.*)"),
    "extracted": re.compile(r"Extracting graphs \((?P<path>[^()]{1,4096})\) for ahead-of-time parallel compilation"),
    "waiting": re.compile(
        r"Another process must be compiling (?P<path>.{1,4096}?),? been waiting for:? (?P<minutes>[\d.]+) minutes?"),
    "completed": re.compile(r"Compilation Successfully Completed for (?P<path>\S{1,4096})"),
    "failed": re.compile(r"Failed compilation with (?P<command>\[.{0,16384}?['\"]\]|\S{1,4096}):?\s?(?P<text>.*)"),
    "gave-up": re.compile(
        r"Compilation failed for (?P<path>\S{0,4096}MODULE_\S{1,512})(?: after (?P<retries>\d+) retries)?"),
    "command": re.compile(r"Call compiler with cmd: (?P<text>.*)"),
    "status": re.compile(r"Compiler status:? (?P<text>PASS|FAIL|ERROR)"),
    # optimum-neuron's Hub cache; asked for model.done, then for model.log.
    "not-found": re.compile(
        r"(?<!\S)(?P<path>\S+/model\.\w+(?:\.\w+)?) not found in (?P<text>\S{1,400}?): "
        r"the corresponding graph will be recompiled"),
    "graph-list": re.compile(r"New graph list from script:\s?(?P<path>\S{0,4096})"),
    "worker-started": re.compile(r"Worker (?P<worker>\d{1,9})(?:/\w+)? starting (?:dynamic|static) scheduling for"),
    "worker-done": re.compile(r"[Ww]orker (?P<worker>\d{1,9}) (?:completed: |finished with num of tasks )\d"),
    "remaining": re.compile(
        r"Current remaining items are (?P<items>\d+), locked are (?P<locked>\d+), failed are (?P<failed>\d+), "
        r"done are (?P<done>\d+), total is (?P<total>\d+)"),
    "summary": re.compile(r"Total graphs: (?P<total>\d+)(?:, Success: (?P<success>\d+), Failed: (?P<failed>\d+))?"),
    "summary-success": re.compile(r"Total successful compilations: (?P<success>\d+)"),
    "summary-failed": re.compile(r"Total failed compilations: (?P<failed>\d+)"),
    "summary-short": re.compile(r"Compilation summary: (?P<failed>\d+)/(?P<total>\d+) failed, (?P<success>\d+) succ"),
    # NxD's model builder, which vLLM and NxD Inference use [neuronx-distributed: trace/model_builder.py]
    # The first graph that it compiles is not among "all".
    "whole": re.compile(
        r"Finished Compilation for all HLOs in (?P<seconds>[\d.]{1,20}) seconds|"
        r"Done compilation for the priority HLO in (?P<priority>[\d.]{1,20}) seconds"),
    # optimum-neuron's export of the parts of a model, tracing included [ON: exporters/neuron/convert.py]
    "exporting": re.compile(r"\*{5} Compiling (?P<text>\S{1,200}) \*{5}"),
    "exported": re.compile(r"\[Compilation Time\] (?P<seconds>[\d.]{1,20}) seconds"),
    "child-rank": re.compile(r"^\s*rank\s*: (?P<rank>\d{1,6}) \(local_rank: \d+\)"),  # torchrun's report of a failure
    "child-exit": re.compile(r"exitcode\s*: (?P<code>-?\d{1,10}) \(pid: (?P<pid>\d{1,10})\)"),
}  # fmt: skip
# One of these stands in each text in which a pattern of LOG_WORDS, or of an error code, finds something.
LOG_MARKS = (
    "ompil", "a cached ", "MODULE_", "[NCC_", "[F13", "Internal", "support ticket", "Killed", "exitcode", "(local_rank",
    "orker ", "New graph list", "Current remaining", "Total graphs",
)  # fmt: skip
RETRYING = re.compile(r"\W{0,4}(?:With er+or log|Retrying)")  # of a cached failure; "eror" is their spelling [SDK]
# npc's JSON report in its log, on one line or indented [SDK; aws-samples' Llama-3-70B walk-through].
NPC_REPORT_TOKEN = re.compile(
    r'"(?P<path>[^"\n]{0,4096}MODULE_[^"\n]{1,512})"\s*:\s*\{'
    r'|"(?P<field>status|retry|compile_time)"\s*:\s*(?P<value>true|false|null|-?[\d.]{1,30}(?:[eE][+-]?\d{1,3})?)'
    r"|(?P<end>\})"
)
# The compiler's own log: `2024-12-04T01:01:23Z INFO 10192 [root]: …` [FILES]; to cc 2.4 or so
# `02/17/2023 04:18:15 PM INFO 57168 [root]: …` [sdk#632]; native parts write `2026-04-23 19:03:57.522402: I …`.
COMPILER_LOG_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?|\d\d/\d\d/\d{4} \d\d:\d\d:\d\d [AP]M) "
    r"(?P<level>[A-Z]{3,10}) (?:(?P<pid>\d{1,10}) )?\[(?P<who>[^\]]{1,200})\]: ?(?P<text>.*)"
)
COMPILER_LOG_FILE = "log-neuron-cc.txt"  # in the working directory, where no --logfile names another [SDK: neuronx-cc]
COMPILER_LOG_PEOPLE = re.compile(r"CommandDriver|neuronx?-cc")  # who tells people of a failure, as USER
COMPILER_LOG_ROOT = "root"  # the process that got the command and that reports the end
COMPILER_LOG_COMMAND = re.compile(r"(?P<command>\S*\bneuronx?-cc\b['\"]?,?\s.*\bcompile\b.*)")
COMPILER_LOG_EXIT = re.compile(r"Subcommand returned with exitcode=(?P<code>-?\d+)")
COMPILER_VERSION = re.compile(r"NeuronX? Compiler version (?P<version>\d\S*)")

# --- failures -----------------------------------------------------------------------------------------------------
# What the telling lines of a failed compile's log contain [LOG; sdk issues 706, 1369; samples issue 94].
ERROR_MARKS = ("[ERROR]", "ERROR", "NCC_E", "NCC_I", "[F137]", "forcibly killed", "Non-signal exit", "Killed")
# `[NCC_EOOM002]`: a category, whose first letter is E for what the user can change and I for the compiler's own faults,
# and a number [SDK: compiler/error-codes]. To cc 2.20 or so without `NCC_` and the letter: `[TEN404]`, `[XCG815]`,
# `[NLA001]`, always with the request to open a support ticket [sdk#881, #884, #948].
ERROR_CODE = re.compile(r"\[(?P<code>NCC_[A-Z]{2,8}\d{2,4})\]")
OLD_ERROR_CODE = re.compile(r"\[(?P<code>[A-Z]{3,5}\d{3})\]\s.{0,4000}?(?:support ticket|Internal)")
# 128 + the signal [the compiler's driver]; `[F137] killed` is how people cut it.
CRASH_CODE = re.compile(r"\[(?P<code>F1(?:34|37|39))\] (?:neuronx?-cc|killed\b)")
# What a shell says of a process that the kernel killed: alone on its line, or in a script with its place and command.
KILLED = re.compile(
    r"^(?:[^\n]{0,200}: line \d{1,9}: +\d{1,10} )?Killed(?:[ \t][^\n]*\bneuronx?-cc\b[^\n]*)?[ \t]*$", re.MULTILINE
)
DEVICE_MEMORY_CODES = re.compile(r"NCC_(?:EOOM|EXSP)\d+")
USER_CODES = re.compile(r"NCC_E[A-Z]+\d+")
HOST_MEMORY_CRASH = "F137"
KERNEL_MISSING = "NCC_EVRF059"  # a kernel's file is not where the graph says, which another trace mends [a third party]
BROKEN_PAIR, BROKEN_PAIR_MEND = "NCC_ISMP902", "neuronx-cc==2.26.6360.0"  # of the pair in REPORTED
EXIT_INTERNAL = 70  # os.EX_SOFTWARE; also what a killed part of the compiler ends as, beside `[F137]`
# Words that name a class where no code does. Only what says so for certain: torchrun's "closing signal SIGTERM" is
# another rank's failure, and "died with <Signals.SIGHUP: 1>" is how libneuronxla reports any failure (-1) [sdk#881].
FAILURE_WORDS = {
    "device-oom": re.compile(
        r"exceeds (?:the )?(?:HBM|device memory) limit|peak HBM usage.{0,60}exceeds|"
        r"HBM memory required.{0,60}exceeds|won't be able to load on chip"),
    "disk-full": re.compile(r"No space left on device|\[Errno (?:28|122)\]|Disk quota exceeded|ENOSPC|EDQUOT"),
    "host-oom": re.compile(
        r"was forcibly killed|insufficient system memory|<Signals\.SIGKILL: 9>|Signal 9 \(SIGKILL\)|"
        r"(?:exited|failed|returned)\b.{0,20} -9\b|Out of memory: Killed process|oom-kill|std::bad_alloc|"
        r"\bMemoryError\b|Cannot allocate memory"),
    "no-compiler": re.compile(
        r"No such file or directory: '?neuronx-cc|neuronx-cc: (?:command )?not found|"
        r"No module named '?neuronxcc(?![\w.])|neuronx-cc is not installed|WRONG PACKAGE|"
        r"error while loading shared libraries|Could not find neuronx-cc"),
    "user-error": re.compile(
        r"Illegal argument\(s\)|unrecognized arguments?:|invalid choice: |[Ii]nstructions generated by compiler|"
        r"Compiler generated too many instructions"),
    "interrupted": re.compile(
        r"\bKeyboardInterrupt\b|<Signals\.SIG(?:INT: 2|TERM: 15)>|Received Signals\.SIG(?:INT|TERM|HUP) death signal|"
        r"Received .{0,20}SIG(?:INT|TERM|HUP)\b.{0,20}death signal"),
    "timed-out": re.compile(r"\bTimeoutExpired\b|timed out after [\d.]+ seconds"),
    "internal": re.compile(
        r"\[INTERNAL_ERROR\]|Internal tensorizer error|CompilerInternalError|Assertion .{0,200}failed|"
        r"Type: <class '(?!concurrent)[\w.]+'>"),
    "crashed": re.compile(
        r"terminated abnormally|BrokenProcessPool|terminated abruptly|Segmentation fault|core dumped|"
        r"<Signals\.SIG(?:ABRT|SEGV)"),
}  # fmt: skip
# The same on a line of its own. An interruption may be of anything there; and what torchrun and a shell report of a
# worker that ended is no word of the compiler's.
FAILURE_LINE = re.compile("|".join(words.pattern for name, words in FAILURE_WORDS.items() if name != "interrupted"))
LAUNCHER_REPORT = re.compile(r"\bexitcode\b|received by PID|torch[./]distributed")
# One of these stands in each text in which FAILURE_LINE finds something.
FAILURE_MARKS = (
    "xceeds", "load on chip", "No space left", "[Errno ", "quota exceeded", "ENOSPC", "EDQUOT", "forcibly killed",
    "insufficient system", "<Signals.", "SIGKILL", " -9", "Out of memory", "oom-kill", "bad_alloc", "MemoryError",
    "Cannot allocate", "neuronx-cc", "neuronxcc", "WRONG PACKAGE", "loading shared libraries", "Illegal argument",
    "unrecognized argument", "invalid choice", "nstructions", "TimeoutExpired", "timed out after", "INTERNAL_ERROR",
    "tensorizer error", "InternalError", "Assertion ", "Type: <class", "terminated a", "BrokenProcessPool",
    "Segmentation fault", "core dumped",
)  # fmt: skip
INTERNAL_WORDS = re.compile(r"An Internal Compiler Error has occurred")  # said of every failure: names no cause
COMPILE_EXIT_IN_TEXT = re.compile(
    r"(?:compilation failed with|failed with|exited with code|exit status|exitcode=) ?(?P<code>-?\d{1,3})\b"
)

# --- devices ------------------------------------------------------------------------------------------------------
# Where the driver tells the chip, and how [neuron_cdev.c]; see `presence` for the bus.
CHIP_FILES = ("/sys/devices/virtual/neuron_device", "neuron*/info/architecture/device_name")
CHIP_NAMES = {"Trainium1": "trn1", "Inferentia2": "inf2", "Trainium2": "trn2", "Trainium3": "trn3"}
INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]{0,20}\.[a-z0-9-]{1,30}")
NEURON_LS_JSON = "--json-output"
NEURON_LS_NONE = re.compile(r"no neuron device", re.IGNORECASE)  # without driver or device [SDK]
# Lines over the table, and over the JSON of some versions: `instance-type: trn1.2xlarge` [FILES].
NEURON_LS_LINE = re.compile(r"^(?P<name>instance-type|logical-neuroncore-config):\s*(?P<value>\S+)\s*$", re.MULTILINE)
# What an object around the list may call it; none was seen.
NEURON_LS_LISTS = ("neuron_devices", "devices")
# Colours, titles and the like, where a tool takes us for a person (ECMA-48: CSI, OSC, two characters).
TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
TABLE_LINES = str.maketrans("│┃─━┌┬┐├┼┤└┴┘┏┳┓┣╋┫┗┻┛", "||--++++++" + "+" * 12)  # tables of other tools' style
NEURON_LS_DEVICE = "neuron_device"
NEURON_LS_CORES, NEURON_LS_CORE_IDS = "nc_count", "neuroncore_ids"
NEURON_LS_LNC = "logical_neuroncore_config"
NEURON_LS_INSTANCE = "instance_type"
NEURON_LS_KNOWN = frozenset({  # one of these in an object makes it a device
    NEURON_LS_DEVICE, NEURON_LS_CORES, NEURON_LS_CORE_IDS, "memory_size", "neuron_processes", "bdf", "pci_bdf",
})  # fmt: skip
NEURON_LS_COLUMNS = ("NEURON DEVICE", "NEURON CORES")  # of the table
# Mapped by a process that uses Neuron's cache from inside: it may hold a lock while no compiler process runs.
CACHE_LIBRARIES = ("libneuronxla", "libneuronpjrt")
