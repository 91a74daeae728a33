"""Faults by rule: what goes wrong, on which requests, from which one on, how often, with what chance.

    hub.fault("504", "POST */commit/main", landed=True)      the commit is done, the answer is lost
    hub.fault("429-window", "* /api/*", times=3, seconds=2)  three times
    hub.fault("cut", "GET /cdn/*", at=1000, nth=2)           the second download ends after 1,000 bytes
    hub.fault("latency", seconds=0.04, times=None)           every request, for ever
    hub.fault("500", chance=0.1, seed=7, times=None)         one in ten, the same ones again with the same order

Contract: headers and texts of the answers are the real Hub's as reported (409, 412, both 429s, a gateway's 504). How
faults are asked for is invented.

| kind | what happens |
|---|---|
| a status: a key of REFUSALS, `429-window`, `502`, `504` | that answer, with `headers`; `landed=True`: once done |
| `black-hole` | the request is taken and never answered, until the client goes or the server stops |
| `drop` | the connection is closed without an answer; `landed=True` as above |
| `cut-request` | the connection is closed after `at` bytes of the request's body |
| `cut` | the answer's body ends after `at` bytes (half, if not given) by closing the connection |
| `slow` | the body comes with `rate` bytes a second; `shared=True`: all of its bodies together do, as over one line |
| `endless` | the body has no length and never ends |
| `wrong-bytes` | the body has its size, with `count` bytes changed at random places |
| `wrong-size` | the body is `extra` bytes longer, or shorter where that is negative, and says so |
| `rewrite` | the body is `body`, or `change(bytes) -> bytes` of the real one; `headers` replace or join the real ones |
| `lag` | heads of branches look `commits` older |
| `latency` | `seconds` pass before anything else; goes together with another fault |
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .commits import BUSY, QUOTA, STALE
from .log import matches
from .wire import HubError, Response

GATEWAY = "<html><head><title>504 Gateway Time-out</title></head><body>504 Gateway Time-out</body></html>"
REFUSALS: dict[str, tuple[str, str]] = {  # kind: (message, error code)
    "302": ("Found", ""),
    "400": ("Bad request", ""),
    "401": ("Invalid credentials in Authorization header", ""),
    "403": ("You don't have the required permissions to perform this action", ""),
    # Of a model whose owners decide who may load it: without a token, and with one that is not on their list.
    "401-gated": (
        "Access to model this/one is restricted. You must have access to it and be authenticated.",
        "GatedRepo",
    ),
    "403-gated": ("Access to model this/one is restricted and you are not in the authorized list.", "GatedRepo"),
    "404": ("Repository not found", "RepoNotFound"),
    "404-repo": ("Repository not found", "RepoNotFound"),
    "404-revision": ("Invalid rev id: main", "RevisionNotFound"),
    "404-entry": ("Entry not found", "EntryNotFound"),
    "408": ("Request timeout", ""),
    "409": (BUSY, ""),
    "412": (STALE, ""),
    "413": ("Payload too large", ""),
    "429-commits": (QUOTA.format(limit=128), ""),
    "500": ("Internal Error - We're working hard to fix this as soon as possible!", ""),
    "503": ("Service unavailable", ""),
    "507": ("Insufficient storage", ""),
}
BODIES = {"cut", "slow", "endless", "wrong-bytes", "wrong-size", "rewrite"}
OTHERS = {"black-hole", "drop", "cut-request", "lag", "latency", "429-window", "502", "504"}


@dataclass
class Fault:
    """One rule. `nth` is the first match it strikes (1: the next), `times` how many from there on; None: all."""

    kind: str
    on: str = "*"
    nth: int = 1
    times: int | None = 1
    chance: float = 1.0
    seed: int = 0
    landed: bool = False
    at: int | None = None
    rate: float = 1024.0
    shared: bool = False
    seconds: float = 1.0
    count: int = 1
    extra: int = 1
    commits: int = 1
    user: str = ""  # only requests with a token of this account: not those of the CDN, nor of Xet
    change: Callable[[bytes], bytes] | None = None
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seen: int = 0
    hits: int = 0
    random: random.Random = field(init=False, repr=False)
    _free: float = field(default=0.0, init=False, repr=False)  # when the shared line takes the next bytes
    _line: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in REFUSALS and self.kind not in BODIES | OTHERS:
            raise ValueError(f"no fault {self.kind!r}")
        self.random = random.Random(self.seed)

    def strikes(self, method: str, path: str, user: str) -> bool:
        """Whether this request is one that it hits; counts."""
        if self.user not in {"", user}:
            return False
        if not matches(self.on, method, path) or (self.times is not None and self.hits >= self.times):
            return False
        self.seen += 1
        if self.seen < self.nth or self.random.random() >= self.chance:
            return False
        self.hits += 1
        return True

    def seconds_for(self, size: int) -> float:
        """How long to wait after so many bytes of a slow body."""
        if not self.shared:
            return size / self.rate
        with self._line:
            now = time.monotonic()
            self._free = max(self._free, now) + size / self.rate
            return self._free - now

    @property
    def is_answer(self) -> bool:
        return self.kind in REFUSALS or self.kind in {"429-window", "502", "504"}

    def answer(self) -> Response:
        """What is sent in place of the real answer."""
        if self.kind in {"502", "504"}:  # by a gateway, that knows nothing of the Hub's errors
            return Response(int(self.kind), {"Content-Type": "text/html"}, GATEWAY.replace("504", self.kind).encode())
        if self.kind == "429-window":
            wait = str(int(self.seconds))
            headers = {"RateLimit": f'"api";r=0;t={wait}', "RateLimit-Policy": '"fixed window";"api";q=1000;w=300'}
            return HubError(429, "Too many requests", headers=headers).response()
        message, code = REFUSALS[self.kind]
        headers = {"RateLimit": '"api";r=900;t=200'} if self.kind == "429-commits" else {}
        return HubError(int(self.kind[:3]), message, code, headers | self.headers).response()

    def damage(self, response: Response) -> Response:
        """The answer with other bytes; only for the kinds that change them."""
        if self.kind == "wrong-size":
            data = response.data()
            data = data + self.random.randbytes(self.extra) if self.extra > 0 else data[: self.extra or None]
        elif self.kind == "wrong-bytes":
            changed = bytearray(response.data())
            for _ in range(self.count if changed else 0):
                changed[self.random.randrange(len(changed))] ^= self.random.randrange(1, 256)
            data = bytes(changed)
        elif self.kind == "rewrite":
            data = self.change(response.data()) if self.change else response.data()
            data = data if self.body is None else self.body.encode()
        else:
            return response
        return Response(response.status, response.headers | self.headers, data)


class Faults:
    """All rules; the first `latency` and the first other rule that strike are applied to a request."""

    def __init__(self) -> None:
        self._rules: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._rules.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._rules = [rule for rule in self._rules if rule is not fault]

    def strike(self, method: str, path: str, user: str) -> tuple[float, Fault | None]:
        """Seconds to wait, and the fault for this request."""
        latency, struck = 0.0, None
        with self._lock:
            for rule in self._rules:
                if rule.kind == "latency":
                    if not latency and rule.strikes(method, path, user):
                        latency = rule.seconds
                elif not struck and rule.strikes(method, path, user):
                    struck = rule
        return latency, struck
