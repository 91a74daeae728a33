"""The page of `cachekit report` in a real browser: drawn as meant, on a laptop and on a phone, light and dark, offline.

Chromium prints the page's elements after layout (`--dump-dom`) and a picture of it (`--screenshot`). A page around it,
which may run a script, looks into it: how wide things are, what is shown, what was asked of the network.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import struct
import subprocess
import threading
import zlib
from datetime import datetime, timezone
from functools import partial
from html import unescape

import pytest
from report_store import fill

from cachekit.journal import Journal
from cachekit.page import page
from cachekit.store import Store
from cachekit.verbs.report import report

BROWSER = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome", "chrome"])), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")
PATIENCE = 120

PROBE = """<!doctype html><title>probe</title><body style="margin:0">
<iframe id="page" src="report.html" style="border:0;width:{width}px;height:{height}px"></iframe><pre id="said"></pre>
<script>
addEventListener("securitypolicyviolation", () => 0);
document.getElementById("page").addEventListener("load", (event) => {{
  const view = event.target.contentWindow, page = view.document;
  const visible = (one) => one.getClientRects().length > 0;
  const box = (one) => one.getBoundingClientRect();
  const texts = [...page.querySelectorAll("svg text")].filter(visible);
  const clipped = texts.filter((one) => {{
    const a = box(one), b = box(one.ownerSVGElement);
    return a.right > b.right + 1 || a.left < b.left - 1 || a.bottom > b.bottom + 1;
  }});
  const crossing = [];
  for (const drawing of [...page.querySelectorAll("svg")].filter(visible)) {{
    const all = [...drawing.querySelectorAll("text")].map((one) => [one.textContent, box(one)]);
    all.forEach(([words, a], at) => all.slice(at + 1).forEach(([other, b]) => {{
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 3) crossing.push(words + " | " + other);
    }}));
  }}
  const spilled = [...page.querySelectorAll("section, .tile, h1, h2, p, svg")].filter(visible).filter(
    (one) => box(one).right > view.innerWidth + 1 || box(one).left < -1);
  document.getElementById("said").textContent = JSON.stringify({{
    title: page.title,
    scrolls: page.documentElement.scrollWidth > view.innerWidth,
    drawings: [...page.querySelectorAll("svg")].filter(visible).length,
    smallest: Math.min(...texts.map((one) => box(one).height)),
    clipped: clipped.map((one) => one.textContent),
    crossing: crossing,
    spilled: spilled.map((one) => one.tagName + " " + one.className),
    asked: view.performance.getEntriesByType("resource").map((one) => one.name),
    ran: view.ran === undefined ? "nothing" : view.ran,
    bars: [...page.querySelectorAll("svg rect")].filter(visible).length,
  }});
}});
</script>
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and remembers what was asked for."""

    asked: list[str] = []  # noqa: RUF012 - all of them

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the page of a hostile store, and its address."""
    folder = tmp_path_factory.mktemp("site")
    home = tmp_path_factory.mktemp("store")
    fill(home, days=30, hostile=True)
    made = page(report(Store(home, Journal(None, "test")), now=datetime(2026, 11, 21, tzinfo=timezone.utc)))
    (folder / "report.html").write_text(made, encoding="utf-8")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def browse(folder, *arguments):
    """Run the browser; its standard output."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
    profile = f"--user-data-dir={folder / 'profile'}"
    run = subprocess.run(
        [BROWSER, *options, profile, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["laptop", "phone"])
def test_it_is_drawn_as_meant(site, tmp_path, width, height):
    folder, address = site
    name = f"probe-{width}.html"
    (folder / name).write_text(PROBE.format(width=width, height=height))
    Quiet.asked.clear()
    printed = browse(tmp_path, "--virtual-time-budget=10000", "--dump-dom", f"{address}/{name}")
    said = json.loads(unescape(re.search(r'<pre id="said">(.*?)</pre>', printed, re.DOTALL)[1]))
    assert said["title"].startswith("cachekit report")
    assert said["drawings"] == 4, "of each drawing one of two is shown"
    assert said["bars"] > 60
    assert not said["scrolls"], "sideways"
    assert said["spilled"] == []
    assert said["clipped"] == []
    assert said["crossing"] == [], "words over words"
    assert said["smallest"] >= 11, "pixels"
    assert said["ran"] == "nothing"
    assert said["asked"] == []
    assert {path for path in Quiet.asked if "favicon" not in path} == {f"/{name}", "/report.html"}


def pixels(path):
    """A picture's width, height, and the colour of a pixel by its place."""
    raw = path.read_bytes()
    assert raw.startswith(b"\x89PNG")
    at, data, width, height, kind = 8, b"", 0, 0, 0
    while at < len(raw):
        (size,), name = struct.unpack(">I", raw[at : at + 4]), raw[at + 4 : at + 8]
        body = raw[at + 8 : at + 8 + size]
        if name == b"IHDR":
            width, height, _, kind = struct.unpack(">IIBB", body[:10])
        elif name == b"IDAT":
            data += body
        at += 12 + size
    each = {2: 3, 6: 4}[kind]
    first = zlib.decompress(data)[1 : 1 + each]  # of the first row, which no row comes before
    return width, height, tuple(first[:3])


@pytest.mark.parametrize(("look", "ground"), [("light", (244, 245, 247)), ("dark", (13, 17, 23))])
def test_it_has_a_light_and_a_dark_look(site, tmp_path, look, ground):
    folder, _ = site
    picture = tmp_path / "page.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if look == 'dark' else 1}"
    browse(tmp_path, scheme, f"--screenshot={picture}", "--window-size=800,600", (folder / "report.html").as_uri())
    assert pixels(picture) == (800, 600, ground)
