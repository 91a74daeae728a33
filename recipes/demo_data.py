"""Fetch the demo's data: 4,200 tweets, each rated by 20 people, as csv files.

    python recipes/demo_data.py .demo                    in a checkout
    python -m cachekit._zoo.recipes.demo_data tweets     where cachekit is installed

They come in the source distribution of vaderSentiment 3.3.2 (MIT licence), so pip is all it takes. Mean ratings from -4
to 4 become three classes at ±0.5, as the data set's authors do. Data: C.J. Hutto and E. Gilbert, VADER, ICWSM 2014.
"""

from __future__ import annotations

import csv
import html
import io
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SDIST = "vaderSentiment==3.3.2"
INNER = "additional_resources/hutto_ICWSM_2014.tar.gz"
TWEETS = "hutto_ICWSM_2014/tweets_GroundTruth.txt"
EXPECTED = {"negative": 1062, "neutral": 838, "positive": 2300}  # counted in the published file


def download(folder: Path) -> Path:
    """The source distribution, through pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "vaderSentiment", SDIST]
    subprocess.run([*command, "--dest", str(folder)], check=True)
    return next(folder.glob("vader*.tar.gz"))


def tweets(sdist: Path) -> list[tuple[str, str]]:
    """Text and class of each tweet."""
    with tarfile.open(sdist) as outer:
        member = next(name for name in outer.getnames() if name.endswith(INNER))
        packed = outer.extractfile(member)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as inner:
            table = inner.extractfile(TWEETS)
            assert table is not None
            lines = table.read().decode("utf-8").splitlines()
    rows = []
    for line in lines:
        _, rating, text = line.split("\t", 2)
        label = "positive" if float(rating) > 0.5 else "negative" if float(rating) < -0.5 else "neutral"
        rows.append((html.unescape(text.strip()), label))
    return rows


def main() -> None:
    """Write train.csv, validation.csv and test.csv into the folder that the command line names."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ".demo")
    if all((target / f"{name}.csv").is_file() for name in ("train", "validation", "test")):
        print(f"{target} has the data already")
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = tweets(download(Path(folder)))
    counts = {name: sum(label == name for _, label in rows) for name in EXPECTED}
    if counts != EXPECTED:
        sys.exit(f"the data is not what it was: {counts}, expected {EXPECTED}")
    random.Random(0).shuffle(rows)
    parts = {"test": rows[:800], "validation": rows[800:1200], "train": rows[1200:]}
    target.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        with (target / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["text", "label"])
            writer.writerows(part)
    print(f"{target}: {', '.join(f'{len(part)} {name}' for name, part in parts.items())} tweets")


if __name__ == "__main__":
    main()
