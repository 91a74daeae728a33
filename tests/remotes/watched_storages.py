"""Remotes around real ones: they count what is asked of them, fail, are slow or busy."""

import time

from msgspec import structs

from cachekit.errors import BusyError, RemoteError
from cachekit.remotes import layout


class Counted:
    """A remote that writes down what is asked of it."""

    def __init__(self, storage):
        self._storage = storage
        self.calls = []

    def __getattr__(self, name):
        value = getattr(self._storage, name)
        if not callable(value):
            return value

        def call(*arguments, **options):
            self.calls.append(name)
            return value(*arguments, **options)

        return call


class Noisy(Counted):
    """A remote of which the first answer for each document has a wrong byte in the middle."""

    def __init__(self, storage):
        super().__init__(storage)
        self._heard = set()

    def read(self, path, revision, limit):
        found = self._storage.read(path, revision, limit)
        if found is None or path in self._heard:
            return found
        self._heard.add(path)
        wrong = bytearray(found.data)
        wrong[len(wrong) // 2] ^= 0x40
        return structs.replace(found, data=bytes(wrong))


class Broken(Counted):
    """A remote of which some calls fail."""

    def __init__(self, storage, *failing, error=RemoteError):
        super().__init__(storage)
        self.failing, self._error = set(failing), error

    def __getattr__(self, name):
        if name in self.failing or ("all" in self.failing and callable(getattr(self._storage, name))):

            def fail(*_, **__):
                self.calls.append(name)
                raise self._error("it is away", cause="the cable is cut")

            return fail
        return super().__getattr__(name)


class Long(Counted):
    """A remote on which one call takes as long as it takes until the holder of a key's lease shows that it lives."""

    def __init__(self, storage, call, key):
        super().__init__(storage)
        self._call, self._lease, self.signs = call, layout.lease_path(key), 0

    def __getattr__(self, name):
        value = super().__getattr__(name)
        if name != self._call or self.signs:
            return value

        def long(*arguments, **options):
            before = self._mark()
            end = time.monotonic() + 20
            while self._mark() == before and time.monotonic() < end:
                time.sleep(0.02)
            self.signs += self._mark() != before
            return value(*arguments, **options)

        return long

    def _mark(self):
        document = self._storage.read(self._lease, self._storage.revision(), 1 << 20)
        return document and document.token


class Busy(Long):
    """A remote that refuses the first record, and is slow to say what it has from then on."""

    def __init__(self, storage, key):
        super().__init__(storage, "", key)

    def commit(self, change, revision):
        if not self._call and any(write.path.startswith(layout.RECORDS) for write in change.writes):
            self._call = "stat"
            raise BusyError("it is busy")
        return self._storage.commit(change, revision)
