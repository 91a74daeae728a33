"""What is known of Inductor: variables, files, flags. Measured with torch 2.13.0 unless another source is given."""

from __future__ import annotations

CACHE_DIR = "TORCHINDUCTOR_CACHE_DIR"
TRITON_CACHE_DIR = "TRITON_CACHE_DIR"  # beside the Inductor cache by default, but only if unset
THREADS = "OMP_NUM_THREADS"
CXX = "CXX"

# Inductor keys its C++ kernels by torch.get_num_threads() (`cpp_runtime_thread_count` of FxGraphHashDetails), so the
# number of threads is an ingredient, and the worker is told it. A cache made with 2 threads misses whole with 1.

# A global header of some 150 MB, in <tmp>/torchinductor_<user>, outside of the cache. It halves a cold compile and is
# built (8 s) by the first process of a user that needs a kernel, even if every kernel is there already. Its switch is
# part of the graph key as shipped; the runtime takes it out of there, since it changes no generated code, so that a
# run that finds everything need not build it.
PRECOMPILE_HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"
PRECOMPILE_HEADERS_CONFIG = "cpp_cache_precompile_headers"
# It is also a macro on the command line by which each kernel is named, and taken out of there for the same reason.
PRECOMPILE_HEADERS_MACRO = "TORCH_INDUCTOR_PRECOMPILE_HEADERS"

# The caches may have been switched off in the user's shell; under cachekit they are what it is about.
FORCED: dict[str, str | None] = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": None,
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": None,
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": None,
    "TORCH_COMPILE_DISABLE": None,
    "TORCHDYNAMO_DISABLE": None,
}

# Variables with these beginnings may change graphs or code, and are ingredients when they are set ...
WATCHED_PREFIXES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "AOT_", "ATEN_CPU_CAPABILITY")
WATCHED = frozenset({CXX})
# ... but for these. Name to reason.
UNWATCHED = {
    CACHE_DIR: "a place; set by cachekit",
    PRECOMPILE_HEADERS: "set by cachekit",
    "TORCHINDUCTOR_COMPILE_THREADS": "how many compile at once; excluded by Inductor as well",
    "TORCHINDUCTOR_WORKER_START": "how compile processes start; excluded by Inductor as well",
    "TORCHINDUCTOR_WORKER_LOGPATH": "logging",
    "TORCH_COMPILE_DEBUG": "dumps",
    "TORCH_COMPILE_DEBUG_DIR": "dumps",
    **dict.fromkeys(FORCED, "set by cachekit"),
}

# Of these a recipe may set some; the others are cachekit's to set.
FREE = frozenset(
    {
        "TORCHINDUCTOR_COMPILE_THREADS",
        "TORCHINDUCTOR_WORKER_START",
        "TORCHINDUCTOR_WORKER_LOGPATH",
        "TORCH_COMPILE_DEBUG",
        "TORCH_COMPILE_DEBUG_DIR",
    }
)

# Flags and options that reach no code. Name to reason; see `flags.py`.
IRRELEVANT_OPTIONS = {
    "verbose": "logging",
    "quiet": "logging",
    "compile_threads": "how many compile at once; excluded by Inductor's own key",
    "worker_start_method": "how compile processes start; excluded by Inductor's own key",
    "verbose_progress": "progress bars",
    "debug": "logging",
}
IRRELEVANT_OPTION_PREFIXES = ("trace.",)

# Files of a cache that are not results: locks, unfinished files, and the compiler's rubbish.
EPHEMERAL_PARTS = frozenset({"locks", "__pycache__"})
EPHEMERAL_SUFFIXES = (".lock", ".tmp", ".gch", ".o")
BINARY_SUFFIXES = (".so", ".cubin", ".hsaco", ".spv")

# CPU features that `-march=native` may turn into instructions (GCC 12's x86 and ARM options, by their names in
# /proc/cpuinfo). Inductor compiles with -march=native, but its keys don't say for which processor; ours do, so that
# code with instructions this CPU lacks is never restored. Kernel notes (`md_clear`, `ibrs`) are left out: they change
# with the kernel.
ISA_FLAGS = frozenset(
    """
    cx16 sahf_lm lahf_lm movbe popcnt pni ssse3 sse4_1 sse4_2 sse4a avx avx2 fma fma4 f16c xop tbm bmi1 bmi2 lzcnt
    abm adx aes vaes pclmulqdq vpclmulqdq gfni sha_ni rdrand rdseed fsgsbase prfchw 3dnowprefetch clflushopt clwb
    clzero mwaitx avx512f avx512dq avx512cd avx512bw avx512vl avx512ifma avx512vbmi avx512_vbmi2 avx512_vnni
    avx512_bitalg avx512_vpopcntdq avx512_bf16 avx512_fp16 avx512_vp2intersect avx_vnni avx_ifma avx_vnni_int8
    avx_ne_convert amx_tile amx_int8 amx_bf16 amx_fp16 movdiri movdir64b enqcmd cldemote serialize ptwrite waitpkg
    rdpid wbnoinvd xsave xsavec xsaveopt xsaves pku shstk ibt uintr hreset kl widekl asimd asimdhp asimddp
    asimdrdm asimdfhm fp fphp atomics crc32 sha1 sha2 sha3 sha512 sm3 sm4 jscvt fcma lrcpc dcpop sve sve2 sveaes
    svebitperm svesha3 svesm4 svei8mm svebf16 i8mm bf16 dgh rng bti flagm flagm2 frint sb ssbs paca pacg
    """.split()  # noqa: SIM905
)
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
