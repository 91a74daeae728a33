"""What the processes of a test do with a remote of their own; a module that spawned processes can import."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import multiprocessing
import os
import pkgutil
import random
import time
import uuid

from cachekit.errors import BusyError, ConflictError, UncertainError
from cachekit.remotes.patience import Patience, patient
from cachekit.remotes.port import ABSENT, Commit, Upload, Write
from tests.remotes import storage_makers
from tests.support import forked

FRESH = multiprocessing.get_context("forkserver")
# The real Hub only for people who ask for it.
EVERY = sorted(
    module.name
    for module in pkgutil.iter_modules(storage_makers.__path__)
    if module.name != "live_hub" or os.environ.get("CACHEKIT_LIVE_HUB")
)
# What lives in the memory of one process: each process that is started would have an empty one.
ONE_PROCESS = {"memory_store"}
KINDS = [kind for kind in EVERY if kind not in ONE_PROCESS]  # those that several processes can share


def serve(kind, folder):
    """The kind's own server, in a folder of its own."""
    return importlib.import_module(f"tests.remotes.storage_makers.{kind}").serve(folder)


def started(make, work, *arguments):
    """A fresh process that runs `work(make, *arguments)` in the environment of this one.

    Never a fork of this one, whose threads serve remotes: a lock that one of them holds, getaddrinfo's say, stays held
    in the fork for ever. It comes from the server that commands are forked from, see `tests.support.forked`, and
    imports the Hub's client, which reads variables as it is imported, itself.
    """
    forked.ready()
    process = FRESH.Process(target=_begin, args=(dict(os.environ), work, make, *arguments), daemon=True)
    process.start()
    return process


def _begin(environ, work, make, *arguments):
    os.environ.clear()
    os.environ.update(environ)
    work(make, *arguments)


@contextlib.contextmanager
def ending(processes):
    """Nothing outlives a test."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def title(what="a test"):
    """A title that no other change has."""
    return f"{what} [{uuid.uuid4().hex}]"


def upload(path, data):
    """Bytes to be put at a path."""
    return Upload(path, len(data), hashlib.sha256(data).hexdigest(), data)


def put(storage, files):
    """Make artifacts visible; returns the revision that has them."""
    uploads = [upload(path, data) for path, data in files.items()]
    revision = storage.revision()
    storage.upload(uploads, revision, lambda _: None)
    return storage.commit(Commit(title(), uploads), revision)


def write(storage, path, data, token):
    """Swap one document; returns the revision that has it."""
    revision = storage.revision()
    return storage.commit(Commit(title(), writes=[Write(path, data, token)]), revision)


def swap(storage, path, change):
    """Replace a document by `change(bytes or None)`, however often it takes."""
    while True:
        try:
            revision = storage.revision()
            document = storage.read(path, revision, 1 << 20)
            data = change(document and document.data)
            what = title()
            try:
                storage.commit(
                    Commit(what, writes=[Write(path, data, document.token if document else ABSENT)]), revision
                )
            except UncertainError:
                if what not in [change.title for change in storage.latest()]:
                    continue
        except (ConflictError, BusyError) as error:
            time.sleep(min(getattr(error, "wait", 0.0), 2.0) + random.uniform(0, 0.05))
        else:
            return


def count(make, path, times):
    """Add one to a counter, so many times."""
    storage = patient(make(), Patience(60.0))  # moto answers a read with 500 now and then, as S3 itself may
    for _ in range(times):
        swap(storage, path, lambda data: b"%d" % (int(data or b"0") + 1))


def sealed(number, size):
    """Bytes that say whether they are whole."""
    body = b"%08d" % number + bytes([number % 256]) * size
    return hashlib.sha256(body).hexdigest().encode() + body


def is_sealed(data):
    """Whether they are."""
    return hashlib.sha256(data[64:]).hexdigest().encode() == data[:64]


def rewrite(make, path, times):
    """Replace a document by larger and smaller ones."""
    storage = make()
    for number in range(times):
        swap(storage, path, lambda _, number=number: sealed(number, 300_000 if number % 2 else 10))
