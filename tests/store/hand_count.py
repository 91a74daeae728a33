"""A journal counted by hand: each figure as docs/stats.md has it in words, one after the other, and slowly."""

from __future__ import annotations

import json


def lines(raw):
    """The events of a journal."""
    found = []
    for line in raw.decode("utf-8", "replace").split("\n"):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(event)
    return found


def number(value):
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value if -1e15 < value < 1e15 else 0


def words(value):
    return value[:200].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def by_hand(events):
    """The figures of one run."""

    def of(*names, key=None):
        return [e for e in events if e["event"] in names and (key is None or words(e.get("key")) == key)]

    def total(figure, *names):
        return sum(number(e.get(figure)) for e in of(*names))

    about = of("plan", "compile.start", "warm.end", "train.end", "command.done", "restore", "reuse.restored")
    keys = {words(e.get("key")) for e in about}
    figures = dict.fromkeys(
        ["hits", "misses", "graphs_found", "graphs_compiled", "recorded_seconds", "retrieval_seconds"], 0
    )
    for key in keys:
        compiled_in_warm = any(number(e.get("compiled")) for e in of("warm.end", key=key))
        miss = bool(of("compile.start", key=key)) or compiled_in_warm
        miss = miss or bool(of("command.done", key=key) and not of("restore", key=key))
        seen = any(e.get("status") == "hit" for e in of("plan", key=key))
        seen = seen or any(not number(e.get("compiled")) for e in of("warm.end", key=key))
        hit = seen and not miss
        figures["hits" if hit else "misses"] += 1

        compiled = sum(number(e.get("compiled")) for e in of("warm.end", "train.end", "command.done", key=key))
        needed = [number(e.get("compiled")) + number(e.get("found")) for e in of("train.end", "command.done", key=key)]
        needed += [max(number(e.get("graphs")), number(e.get("compiled"))) for e in of("warm.end", key=key)]
        figures["graphs_compiled"] += compiled
        if not of("command.done", key=key) or of("restore", key=key):
            figures["graphs_found"] += max(max(needed, default=0) - compiled, 0)

        def loading(e):
            return number(e["phases"].get("graphs")) if isinstance(e.get("phases"), dict) else 0

        given = [e for e in of("command.done", key=key) if number(e.get("restored_bytes"))]
        retrieval = sum(number(e.get("overhead_seconds")) + loading(e) for e in of("train.end", key=key))
        retrieval += sum(number(e.get("overhead_seconds")) for e in given)
        if hit:
            retrieval += sum(number(e.get("seconds")) for e in of("warm.end", key=key))
            saying = [e for e in events if e in given or e in of("warm.end", "train.end", key=key)]
            for e in saying[-1:]:
                if e["event"] == "warm.end":
                    figures["recorded_seconds"] += number(e.get("cold_seconds")) or number(e.get("compile_seconds"))
                else:
                    figures["recorded_seconds"] += number(e.get("saved_seconds")) + (
                        loading(e) if e["event"] == "train.end" else 0
                    )
        else:
            spared = 0
            for e in of("warm.end", "command.done", key=key):
                if e in given:
                    spared = number(e.get("saved_seconds"))
                elif e["event"] == "warm.end" and number(e.get("compiled")):
                    took = number(e.get("compile_seconds"))
                    spared += max((number(e.get("cold_seconds")) or took) - took, 0)
            figures["recorded_seconds"] += spared
        retrieval += sum(number(e.get("seconds")) for e in of("reuse.restored", key=key))
        figures["retrieval_seconds"] += retrieval

    ended, failed = bool(of("run.end")), bool(of("run.failed"))
    figures |= {
        "runs": 1,
        "failed": int(failed),
        "unfinished": int(not ended and not failed),
        "waits": len({words(e.get("key")) for e in of("lock.wait")}),
        "waited_seconds": total("waited_seconds", "warm.end"),
        "compile_seconds": sum(number(e.get("compile_seconds")) for e in of("warm.end") if number(e.get("compiled")))
        + total("compile_seconds", "command.done"),
        "bytes_restored": total("bytes", "restore", "reuse.restored"),
        "graphs_reused": total("graphs", "reuse.end"),
        "fetches": len(of("pull.end", "pull.modules")),
        "bytes_fetched": total("bytes", "pull.end", "pull.modules"),
        "fetch_seconds": total("seconds", "pull.end", "pull.modules"),
        "pushes": len(of("push.end")),
        "bytes_pushed": total("bytes", "push.end"),
        "push_seconds": total("seconds", "push.end"),
        "push_failures": len(of("push.failed")),
        "remote_failures": len(of("remote.failed")),
        "damaged": len(of("remote.damaged", "store.damaged")),
    }
    bypasses = {}
    for e in of("cache.bypass"):
        reason = words(e.get("reason")) or "unnamed"
        bypasses[reason] = bypasses.get(reason, 0) + 1
    return figures, bypasses
