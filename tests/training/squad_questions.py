"""Questions with answers in their texts, and how they are read."""

from __future__ import annotations

import random
import re

TASK = "question-answering"
VOCABULARY = ["river", "the", "Ångström", "façade", "東京", "Zbigniew", "12", ",", "a", "🙂", "antidisestablishment"]


def question(chosen, words, answered=True, many=1):
    context = " ".join(chosen.choice(VOCABULARY) for _ in range(words))
    answers = []
    for _ in range(many if answered and words else 0):
        places = [match.span() for match in re.finditer(r"\S+", context)]
        first = chosen.randrange(len(places))
        last = min(len(places) - 1, first + chosen.randrange(4))
        answers.append((context[places[first][0] : places[last][1]], places[first][0]))
    return {
        "question": f"  What about {chosen.choice(VOCABULARY)} ?",
        "context": context,
        "answers": {"text": [text for text, _ in answers], "answer_start": [start for _, start in answers]},
    }


def questions(count, seed=1, version=2):
    """Of all kinds: empty and very long contexts, several answers or none."""
    chosen = random.Random(seed)
    made = [question(chosen, chosen.choice([3, 20, 60, 200]), True, chosen.choice([1, 1, 3])) for _ in range(count)]
    if version == 2:
        made[1::3] = [question(chosen, 30, answered=False) for _ in made[1::3]]
        made[2] = question(chosen, 0)
    return made
