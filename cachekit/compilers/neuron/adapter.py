"""What is known of Neuron without a machine: of torch-neuronx on XLA, and of TorchNeuron, which has no XLA.

This module is asked at every start, so everything else of Neuron is loaded in its methods: that takes 10 ms and more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import structs

from cachekit.compilers.adapter import Adapter, CachePlace, Explained, Judged, WithoutDevice
from cachekit.compilers.neuron import presence
from cachekit.compilers.port import Compiler, Node
from cachekit.errors import CachekitError, CompilerUnavailableError, UsageError
from cachekit.key.canonical import SIDES
from cachekit.store.record import File, Module, Record

if TYPE_CHECKING:
    from cachekit.compilers.evidence import Subject
    from cachekit.compilers.foreign import ForeignCache
    from cachekit.compilers.graphs import CompiledFile, Logged, StoredModule
    from cachekit.compilers.neuron.host import NeuronHost
    from cachekit.health import Check
    from cachekit.store.archive import Stored
    from cachekit.store.leaks import Leaks

FLAGS = "compiler.flags"


class _Neuron(Adapter):
    """What both share: the devices, and the compiler's words."""

    def here(self, *, compiles: bool) -> bool:
        if not presence.possible():
            return False
        from cachekit.compilers.neuron import installed

        return installed.native_available() if self.name == "neuron-native" else installed.available()

    def device(self) -> str:
        if not presence.may_have_devices():
            return ""
        from cachekit.compilers.neuron import host

        shown = host.there()
        return f"Neuron devices ({shown})" if shown else ""

    def without_device(self, instance: str) -> WithoutDevice:
        from cachekit.compilers.neuron import facts
        from cachekit.recipe import zoo

        native, target = self.name == "neuron-native", zoo.instance(instance).target
        chip = facts.TARGET_CHIPS.get(target, "")
        if not chip or (native and chip not in facts.NATIVE_CHIPS):
            raise UsageError(
                f"{self.name} does not compile for {instance}",
                cause=f"its chip is {chip}" if chip else "it has no Neuron device",
                hint="`cachekit zoo ls instances` lists the instance types; or leave out --compiler",
            )
        doubt = facts.NATIVE_WITHOUT_DEVICE if native else facts.XLA_WITHOUT_DEVICE
        return WithoutDevice({facts.TARGET_OVERRIDE: target}, doubt)

    def instance(self) -> str:
        if not presence.possible():
            return ""
        from cachekit.compilers.neuron import host, installed

        with suppress(CachekitError):
            return host.this_host(installed.NATIVE).instance
        return ""

    def explain(self, name: str, old: Any, new: Any, sides: tuple[str, str] = SIDES) -> list[str]:
        if name != FLAGS or not isinstance(old, list) or not isinstance(new, list):
            return []
        from cachekit.compilers.neuron.explain import flag_lists

        return flag_lists([str(word) for word in old], [str(word) for word in new], sides)


class XlaAdapter(_Neuron):
    """torch-neuronx on XLA, and its cache of modules."""

    name = "neuron"
    prefix = "neuronxcc-"

    def here(self, *, compiles: bool) -> bool:
        """Whether it is here. It is asked after TorchNeuron, and so it is the one that says what is missing."""
        if super().here(compiles=compiles):
            return True
        if compiles and (presence.may_have_devices() or presence.meant()):
            from cachekit.compilers.neuron import host

            if wrong := host.unusable():
                raise wrong.error()
        return False

    def open(self, node: Node | None = None) -> Compiler:
        from cachekit.compilers.neuron.compiler import Neuron

        return Neuron(node=node)

    def elsewhere(self, toolchain: str, instance: str) -> Compiler:
        from cachekit.compilers.neuron import compiler, host

        return compiler.Neuron(host.named(toolchain, instance, self.name))

    def checks(self) -> Sequence[Check]:
        """All of Neuron, TorchNeuron too; none on a host that has nothing of it."""
        from cachekit.compilers.neuron.doctor import CHECKS, concerned

        return CHECKS if concerned() else ()

    def packages(self) -> Collection[str]:
        from cachekit.compilers.neuron import facts

        return facts.PACKAGE_MODULES

    def places(self) -> Mapping[str, CachePlace]:
        from cachekit.compilers.neuron.root import resolve, resolve_native

        return {"neuron_cache": resolve(), "native_cache": resolve_native()}

    @cached_property
    def foreign_cache(self) -> ForeignCache:  # type: ignore[override]
        from cachekit.compilers.neuron.caches import ModuleCache

        return ModuleCache()

    def toolchain(self, directory: str) -> dict[str, str]:
        from cachekit.compilers.neuron import facts

        found = facts.COMPILER_DIRECTORY.fullmatch(directory)
        return {facts.COMPILER_PACKAGE: found["version"]} if found else {}

    def graph(self, module: Module) -> File | None:
        from cachekit.compilers.neuron import facts

        return next((file for file in module.files if file.path == facts.NEFF), None)

    def lacks(self, modules: Sequence[Module]) -> str:
        from cachekit.compilers.neuron import facts

        lacking = [one for one in modules if any(file.path.endswith(facts.KERNEL_LACKING) for file in one.files)]
        if not lacking:
            return ""
        return f"the graph of {lacking[0].name} names an NKI kernel that was not available when the graph was kept"

    def judge(self, module: Module, path: Callable[[File], Path]) -> Judged:
        from cachekit.compilers.neuron import facts, fit, flags, neff

        files = {file.path: file for file in module.files}
        if facts.NEFF not in files:
            return Judged()
        try:
            whole = neff.read(path(files[facts.NEFF]), leaks=False)
        except neff.NeffError as error:
            return Judged(harm=error.reason) if error.damaged else Judged(oddity=error.reason)
        words = flags.read_flags(path(files[facts.FLAGS_FILE])) if facts.FLAGS_FILE in files else None
        compiler, _, name = module.name.partition("/")
        return Judged(harm=fit.misfit(whole, fit.claim(compiler, name, words)) or "")

    def read_log(self, log: BinaryIO) -> Logged | None:
        from cachekit.compilers.neuron.log import summary

        return summary.read(log)

    def describe(self, path: Path) -> CompiledFile | None:
        from cachekit.compilers.neuron import describe

        return describe.file(path)

    def describe_modules(self, modules: Sequence[Module], path: Callable[[File], Path]) -> Sequence[StoredModule]:
        from cachekit.compilers.neuron import describe

        found = describe.modules(modules, path)
        said = super().describe_modules(modules, path)
        return [structs.replace(module, graph=found.get(module.name)) for module in said]

    def leaks(self, file: File, path: Path, *, archive: bool) -> Leaks:
        """What a NEFF would tell, whose parts are packed."""
        from cachekit.compilers.neuron import facts, neff

        if file.path == facts.NEFF:
            with suppress(neff.NeffError, OSError):
                return neff.read(path).leaks
        return super().leaks(file, path, archive=archive)

    def explain_modules(
        self, names: Sequence[str], new: Collection[str], record: Record, path: Callable[[File], Path]
    ) -> dict[str, Explained]:
        from cachekit.compilers.neuron import facts, flags
        from cachekit.compilers.neuron.explain import module_name

        files = {m.name: file for m in record.modules for file in m.files if file.path == facts.FLAGS_FILE}
        words = {name: found for name, file in files.items() if (found := flags.read_flags(path(file))) is not None}
        recorded = [module.name for module in record.modules if module.name not in new]
        return {name: module_name(name, recorded, words) for name in names}

    def assumed(self) -> Subject:
        """It is asked after TorchNeuron, and so it is the one that says what is missing."""
        from cachekit.compilers.neuron import assumptions, host, install

        try:
            if wrong := host.unusable():
                raise wrong.error()
            return _tried(assumptions.XLA, host.this_host())
        except CompilerUnavailableError as error:
            # Whoever asks about Neuron is not helped by another compiler.
            mends = (error.hint or "").removesuffix(install.INSTEAD).removesuffix("; or ")
            raise CompilerUnavailableError(error.message, cause=error.cause, hint=mends) from error


class NativeAdapter(_Neuron):
    """TorchNeuron, which is torch-neuronx without XLA: one archive a warm."""

    name = "neuron-native"
    prefix = "torchneuron-"

    def open(self, node: Node | None = None) -> Compiler:
        from cachekit.compilers.neuron.native_compiler import NeuronNative

        return NeuronNative(node=node)

    def elsewhere(self, toolchain: str, instance: str) -> Compiler:
        from cachekit.compilers.neuron import host, native_compiler

        return native_compiler.NeuronNative(host.named(toolchain, instance, self.name))

    @cached_property
    def foreign_cache(self) -> ForeignCache:  # type: ignore[override]
        from cachekit.compilers.neuron.caches import GraphCache

        return GraphCache()

    def toolchain(self, directory: str) -> dict[str, str]:
        from cachekit.compilers.neuron import facts

        return {facts.COMPILER_PACKAGE: directory.removeprefix(self.prefix)}

    def assumed(self) -> Subject | None:
        from cachekit.compilers.neuron import assumptions, host, installed

        if not installed.native_available():
            return None
        return _tried(assumptions.NATIVE, host.this_host(installed.NATIVE))

    def describe_modules(self, modules: Sequence[Module], path: Callable[[File], Path]) -> Sequence[StoredModule]:
        said = super().describe_modules(modules, path)
        return [structs.replace(one, graphs=len([*self.foreign_cache.units(one, path)])) for one in said]

    def leaks(self, file: File, path: Path, *, archive: bool) -> Leaks:
        """What the graphs of an archive would tell, each of which is packed."""
        from cachekit.compilers.neuron import facts, neff
        from cachekit.store.leaks import Leaks, of_archive

        def packed(stored: Stored) -> Leaks | None:
            if not stored.name.endswith(facts.NATIVE_SUFFIX):
                return None
            with suppress(neff.NeffError):
                return neff.read(path, part=neff.Slice(stored.offset, stored.size)).leaks
            return Leaks()

        return of_archive(path, packed) if archive else super().leaks(file, path, archive=archive)

    def graph(self, module: Module) -> File | None:
        return module.files[0] if len(module.files) == 1 else None

    def judge(self, module: Module, path: Callable[[File], Path]) -> Judged:
        from cachekit.compilers.neuron import native

        if len(module.files) != 1:
            return Judged(harm="it is not a single archive")
        (packed,) = module.files
        folder, _, name = module.name.partition("/")
        if name != f"{packed.sha256}.tar":
            return Judged(harm="its bytes do not match the digest in its name")
        return native.judge(path(packed), folder)


def _tried(subject: Subject, machine: NeuronHost) -> Subject:
    """On two workers: what is each one's own, and what depends on their number, shows with two."""
    from cachekit.compilers.neuron import cores

    return structs.replace(subject, workers=max(1, min(2, cores.of_run(machine, None))))


ADAPTERS: dict[str, Adapter] = {one.name: one for one in (NativeAdapter(), XlaAdapter())}
