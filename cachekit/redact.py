"""Secrets: how they are told by name, form and value, and how they are kept out of all that cachekit writes or prints.

A secret belongs into the environment of the process that needs it. Whoever writes one into an address, a recipe or a
command line all the same must not find it in records, journals, logs, errors or on screens: `***` stands in its place.
The values of this process's own secret variables are always looked for: no caller hands them over.

Forms are a table, `secret_forms.txt`, of what has a part of its own: digests, base64 and names of modules look like any
secret without one. Those are told by the names of what holds them (`WANDB_API_KEY`). No package has such a table that
could be asked: gitleaks is a program in Go, and detect-secrets 1.5 knows 20 kinds, none of Hugging Face, and needs
`requests`.

This is one file, and the table beside it, that imports the standard library alone: it is loaded by its name inside of
users' commands, where cachekit cannot be imported (`compilers/inductor/hook`).
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

HIDDEN = "***"
_WORD = 200  # characters of texts that are remembered
SHORTEST = 8  # characters of a variable's value that is looked for everywhere: shorter ones are words, too

# Repetitions have limits where a stranger's line could make them quadratic.
# A pattern is compiled where its fixed part is in a text, as `plan` must be fast: so are all below.
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"  # also after an escape of JSON's or an address's
# A word in capitals has the form of these, too: they must look random.
_AWS = ("A3T", "AKIA", "ASIA", "ABIA", "ACCA")
_SHORTEST_FORM = 15  # characters of the shortest that any form of the table takes
_PEM = r"(?s)-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY[^-]{0,40}-----(?:(?!-----BEGIN).)*?(?:-----END[^-]*-----|\Z)"
_PEM_BEGIN, _PEM_END = rb"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY", b"-----END"
_PEM_LINES = 200
# A name and a password, in any address. A password may have slashes in it; a port and a path are none.
_LOGIN = r"(?<=://)(?!USER:PASSWORD@)[^/\s@:\[()?\"'<>]{0,200}:(?!\d{1,5}[/?#])[^\s\"'<>]{0,500}(?=@)"
# A token alone, as `git clone` takes it: long, and no name of words.
_LONE = r"(?<=://)(?=[^/\s@]*\d)(?=[^/\s@]*[A-Za-z])[A-Za-z0-9_~%+-]{20,500}(?=@)"
_SIGNED = r"([?&;#](?:amp;)?([\w.%~-]{1,99})=)([^&\s\"'<>#;]+)"
# Passwords that well-known commands take: `curl -u ann:<PW>`, `mysql -p<PW>`, `sshpass -p <PW>`. A reference is none.
_TAKEN = (
    (r"\bcurl\b", r"\s(?:-u|--user)[ =]?([\"']?)[^\s:\"']{1,99}:"),
    (r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b", r"\s-p(?!ort(?:\b|\d))([\"']?)"),
    (r"\bsshpass\b", r"\s-p\s*([\"']?)"),
)
_NEAR = 300  # characters between a command and its option
# `ann:<PW>@host` without a scheme: what has letters and digits, or other characters than words have, and is no port,
# version or digest. What stands before mail addresses, packages and images is no user; nor is what a training calls a
# part of its name, where a short word of small letters and digits follows: `trial:lr1e-3@node7`. No host is `fp16`.
_PAIR = (
    r"(?i)(?<![\w/.:@%+-])((?!(?:[\w.-]*[_.-])?(?:arch|author|bcc|by|cc|contact|cpu|device|dtype|e?mail|from|git|gpu|image|"
    r"layer|mailto|model|module|node|npm|op|owner|param|scp|sender|sip|ssh|tag|tensor|to|xmpp):)"
    r"(?!(?:[\w.-]*[_.-])?(?:cfg|ckpt|conf|config|exp|experiment|lr|optim|preset|recipe|sweep|trial|variant):"
    r"(?-i:[a-z\d._+-]{1,12})@)[a-z_][\w.-]{0,63}:)"
    r"(?=[^\s@]*[a-z])(?=[^\s@]*[^a-z_.@-])(?![vr]?\d[\w.]*[-+]?\w*@)[^\s:/@,;\"'`<>$*{}()\[\]]{6,200}"
    r"(?=@(?!sha\d{3}|(?:bf|fp|int|tf)\d{1,2}(?![\w.-]))(?:\d{1,3}(?:\.\d{1,3}){3}|[a-z][\w.-]*)(?::\d|[\s/\"',;)]|$))"
)
_ORACLE = r"(\boracle:\w{1,9}:[^\s/@:]{1,99}/)[^\s@\"']{1,200}(?=@)"  # `jdbc:oracle:thin:scott/<PW>@host`
_BEARER = r"(?i)\b((Bearer|Basic)\s+)([A-Za-z0-9._~+/-]{6,}=*)"
# A name with what joins it to a value, as programs print them: `NAME=value`, `"name": "value"`, `Header-Name: value`,
# `name = value`, `environ['NAME'] = 'value'`, `name%3Dvalue`, `name:value`, `-Dname=value`; perhaps with a header's
# word: `Authorization: token X`.
_NAMED = (
    r"(?:(?<![\w$%])(?<!\$\{)(?:(?<=-)D)?|(?<=%[0-9A-Fa-f]{2}))([A-Za-z_][\w.-]{0,99})(?![\w.-])"
    r"(=(?:\\?[\"'])?|[\"']=[\"']?|[ \t]{1,20}=[ \t]{1,20}[\"']?|[\"']\][ \t]{0,20}=[ \t]{0,20}[\"']?|%3[Dd]"
    r"|\\?[\"']\s*:\s*b?\\?[\"']|:[ \t]+|:(?=[^\s:/\"']))((?:(?i:apikey|basic|bearer|digest|negotiate|token)[ \t]+)?)"
)
# `--name value`, inside of one text. What stands before the first character is looked at after that: so `re` jumps from
# one to the next.
_OPTION = r"-(?<![\w-]-)-?([A-Za-z][\w.-]{0,99})([ \t]+)()"
_TWO_WORDS = r"\A([A-Za-z][\w.-]{0,99})([ \t]+)()(?=\S*\d)(?=\S{8,}\Z)"  # all of a text: `--set "api_key X"`
_CODE_OF_PYTHON = r".*[(\[{].*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"  # what follows `token = `, where that is no value
_VALUE = r"(?<=\")[^\"\\]+|(?<=')[^'\\]+|\$\{\w*\}|[^\s\"',;&)}\]`]+"
_UNLIKE_WORDS = r"\d|[a-z][A-Z]|[^\w.,;:!?'-]|\w{20}"
# By `name:value`, where the value has a digit.
_TOLD = ("token", "password", "passwd", "secret", "psk", "apikey", "accesskey", "secretkey", "privatekey")
_SHORT = 200  # characters of such a value: `token:token:...` has one behind each colon
_TAG = r"[vr]?\d[\w.-]{0,20}|latest.*"
_NUMBERS = r"[\d.:+/ -]+"  # dates, times and versions, too
_PATH = r"(?:~|\.{1,2})/.*|/[A-Z]?[a-z\d_.-]+(?:/.*)?"  # /mnt/x; not /kQ3+Zm, as a key in base64 may begin
_PLAIN_ADDRESS = r"[a-z][a-z\d+.-]*://[^@?#]*"  # one without a login and a query

# Names of what holds a secret, in words: `apiKey` and `X-Api-Key` are `api key`.
_NAME_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_ALWAYS = frozenset({"password", "passwd", "passphrase", "webhook", "webhooks"})
# What stands behind a secret's name and changes nothing: HF_TOKEN_2, TOKEN_PROD; and in variables SECRET_KEY_BASE.
_BEHIND = frozenset("dev prod production read staging v write".split())  # noqa: SIM905
_BEHIND_CAPITALS = _BEHIND | frozenset(
    "admin backup base config data id json main new old pem ro rw test".split()  # noqa: SIM905
)
_LAST = frozenset(
    """
    secret secrets credential credentials creds dsn pwd pw passcode apikey accesskey secretkey privatekey authtoken
    authorization bearer auth passwords cookie netrc sas jwt psk
    """.split()  # noqa: SIM905
)
_GLUED = (
    *("password", "passwd", "apikey", "secretkey", "accesskey"),
    *("accesstoken", "apitoken", "authtoken", "bottoken", "hftoken", "hubtoken", "sessiontoken"),
    *("hookurl", "sessionid", "sessid"),
)
_NO_SECRETS = frozenset({"PWD", "OLDPWD", "XDG_SESSION_ID", "TERM_SESSION_ID", "ITERM_SESSION_ID"})
# What other tokens and keys are: a tokenizer's words, columns of a table, what something is sorted or found by. Some
# are of services, too: as variables always, else where the value looks random, as no word of a tokenizer does.
_SERVICES = frozenset({"bot", "system", "trigger", "user"})
_PLAIN_TOKENS = frozenset(
    """
    audio beg begin blank bos boi bot class cls decoder delimiter doc document end eoi eos eot fim first go human image
    img instruction last line mask middle new next pad per pool prefix query response sep separator soft sos space
    special start stop suffix system tag text think tool trigger unk user video word
    """.split()  # noqa: SIM905
)
_PLAIN_KEYS = frozenset(
    """
    answer answers audio batch best cache candidate caption checkpoint checkpoints choice chosen code column compile
    config content context dataset data doc document experiment experiments feature field file foreign graph group hash
    history id image images index input inputs item join json label labels lookup loss mask message messages metric
    model module monitor name node option order output outputs param partition pixel primary prompt public question
    record rejected response rng routing row sample score select sequence shard sort source split state store summary
    tag target task text title tree video weight weights
    """.split()  # noqa: SIM905
)
# Keys that open something. What another one is, its name does not say.
_OPENING_KEYS = frozenset(
    """
    access account api app application auth client consumer deploy encryption hmac license master private secret
    service signing ssh storage wandb
    """.split()  # noqa: SIM905
)
_FORGES = frozenset({"", "azure", "devops", "gh", "github", "gitlab"})
# Of variables only: elsewhere these are what is done, and what something is pinned to.
_CAPITALS = frozenset({"pass", "pat", "otp", "pin"})
_CODE = r"(?:.*[._])?(?:OTP|PIN)"  # the value of such a one is a number
_PASS = frozenset("db email ftp http https key mail mysql pg postgres proxy redis smtp ssh user".split())  # noqa: SIM905
_STORES = frozenset(
    """
    amqp broker clickhouse database db mongo mongodb mysql pg postgres postgresql rabbitmq redis sqlalchemy
    """.split()  # noqa: SIM905
)
_PAIRS = frozenset(
    {
        "key id", "api keys", "api tokens", "access keys", "access tokens", "auth tokens", "connection string",
        "conn str", "auth header", "secret access", "token value", "session id", "hook url", "hook uri", "hooks url",
        "chat hook", "discord hook", "incoming hook", "slack hook", "teams hook",
    }
)  # fmt: skip
_SIGNATURES = frozenset(
    {"sig", "signature", "x-amz-signature", "x-amz-credential", "x-goog-signature", "x-goog-credential"}
)
# Values that say nothing: words for yes, no and nothing, numbers, places that wait for a value, a tokenizer's words.
# Of tokens that are most often a tokenizer's.
_DRAWN = r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[\w+/=~.:-]{10,}|(?=.*\d)(?=.*[a-z])[a-z\d]{16,}"
_IDLE = (
    r"(?i)|true|false|yes|no|on|off|none|null|bearer|basic|-?[\d.]+|\*+|\.{3}|…|<[\w .:-]*>?|<.*>|\[[A-Z_]*\]?"
    r"|\$(?:\w+|\{\w+\}|\(.*)|%\w+%|@\w+@|\{+[\w. $()-]*\}*|[xX]{3,}|your\W.*"
)

# A digest and a moment: each record has its own, and no secret has their forms.
_OF_RECORDS = r"[0-9a-f]{64}|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)?"


# By name


@lru_cache(4096)
def names_secret(name: str) -> bool:
    """Whether what is called so is a secret: `HF_TOKEN`, `--api-key`, `DATABASE_URL`; not `pad_token_id`."""
    name = name if name.isascii() else _plain(name)
    words = [word.lower() for word in re.findall(_NAME_WORDS, name)]
    if not words or name in _NO_SECRETS:
        return False
    own = name.rpartition(".")[2]  # in `keys.2` a place in a list
    short, behind = [*words], _BEHIND_CAPITALS if own.isupper() else _BEHIND
    while len(short) > 1 and not own.isdecimal() and (short[-1] in behind or short[-1].isdecimal()):
        short.pop()
    return _names_secret(name, words) or (short != words and _names_secret(name, short))


def surely_secret(name: str) -> bool:
    """Whether a name that `names_secret` says nothing else: a key may be what something is found by."""
    words = [word.lower() for word in re.findall(_NAME_WORDS, name)]
    return names_secret(name) and (name.isupper() or words[-1] != "key" or words[-2] in _OPENING_KEYS)


def names_tokens(name: str) -> bool:
    """Whether a name leaves it to the value whether that is a secret: `--bot_token`, `tokens`; not `stop_tokens`."""
    if not name[-6:].lower().endswith(("token", "tokens")):
        return False
    words = [word.lower() for word in re.findall(_NAME_WORDS, name)]
    return words[-1] != "tokens" or name.isupper() or words[-2:][0] not in _PLAIN_TOKENS - _SERVICES


def _names_secret(name: str, words: list[str]) -> bool:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    capitals = name.rpartition(".")[2].isupper()
    if not _ALWAYS.isdisjoint(words):
        return last not in {"file", "path", "env"}
    if last == "token":
        return before not in _PLAIN_TOKENS or (capitals and before in _SERVICES)
    if last == "key":  # a bare one is most often what something is found by
        return bool(before) and (capitals or before not in _PLAIN_KEYS)
    if last in _LAST or last.endswith(_GLUED):
        return True
    return (
        f"{before} {last}" in _PAIRS
        or (last == "pass" and (not before or before in _PASS))
        or (last == "pat" and before in _FORGES)
        or (capitals and (last in _CAPITALS or last.endswith("pw")))
        or (last in {"url", "uri"} and before in _STORES)
    )


def is_secret(name: str, value: object) -> bool:
    """Whether a named value is a secret by its name. A switch, a number or a `$REFERENCE` is none."""
    if not isinstance(value, str):
        return False
    if not names_secret(name):
        drawn = re.fullmatch(_DRAWN, value) and not re.fullmatch(f"{_PATH}|{_PLAIN_ADDRESS}", value)
        return bool(drawn) and names_tokens(name)
    return re.fullmatch(_IDLE, value) is None or (value.isdecimal() and re.fullmatch(_CODE, name) is not None)


def secrets_of(variables: Mapping[str, str]) -> dict[str, str]:
    """Those variables, in the order of their names, whose values are looked for in all that is written or printed.

    Their names say that they are secrets. A value that stands in many a place for other reasons is none: a short one, a
    number, a word or a name of words (`development`, `bert-base`), this user's own name, a path. A path is told by its
    form: whether something is there must not change a key.
    """
    known = {variables.get(name) for name in ("USER", "LOGNAME", "USERNAME", "HOSTNAME")}
    return {
        name: value
        for name, value in sorted((name, value.strip()) for name, value in variables.items())
        if len(value) >= SHORTEST
        and is_secret(name, value)
        and value not in known
        and re.search(_UNLIKE_WORDS, value)
        and not re.fullmatch(_NUMBERS, value)
        and not re.fullmatch(_PATH, value)
    }


# By value


class _Own:
    """The values of this process's secret variables, in all their shapes: gathered once, until a variable changes."""

    def __init__(self) -> None:
        self._variables: dict[Any, Any] | None = None
        self._shapes: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, ...]:
        # What `os.environ` reads from: to compare it takes 2 µs, and to read all variables 200.
        variables = getattr(os.environ, "_data", None)
        if variables is None or variables != self._variables:
            self._variables = None if variables is None else dict(variables)
            self._shapes = _shapes(tuple(secrets_of(os.environ).values()))
        return self._shapes


_own = _Own()


def _sought(others: Iterable[str] = ()) -> tuple[str, ...]:
    """What is looked for by value: of this process, and of others' variables."""
    return (*_shapes(tuple(others)), *_own()) if others else _own()


@lru_cache(16)
def _shapes(values: tuple[str, ...]) -> tuple[str, ...]:
    """Values as they are, and as texts have them: in JSON, addresses, quotes, base64, hex digits; longest first."""
    found = {one for value in values for one in _encoded(value) if len(one) >= SHORTEST or one == value}
    return tuple(sorted(found, key=lambda one: (-len(one), one)))


def _encoded(value: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus

    plain = {value, *(json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))}
    yield from (json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in plain for ascii_only in (True, False))
    yield from (*plain, repr(value)[1:-1])
    yield from (value.replace("'", by) for by in ("'\"'\"'", r"'\''", '"'))  # the last: as torch writes variables down
    raw = value.encode("utf-8", "surrogateescape")
    for one in (text.encode("utf-8", "surrogateescape") for text in plain):
        for quoted in (quote(one), quote(one, safe=""), quote_plus(one), quote_plus(one, safe="/:@")):
            yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))
    yield from (raw.hex(), raw.hex().upper())
    for before in range(3):  # also in the middle of something: without the digits that its neighbours have a part in
        whole = base64.b64encode(b"\0" * before + raw).decode()
        inner = whole[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))


# By form


def _without_addresses(text: str, hidden: str) -> str:
    """Without logins in addresses, and signatures in links."""
    if "@" in text and ":" in text:
        if "://" in text:
            text = re.sub(_LONE, hidden, re.sub(_LOGIN, hidden, text))
        text = re.sub(_PAIR, rf"\g<1>{hidden}", text)
        if "oracle:" in text:
            text = re.sub(_ORACLE, rf"\g<1>{hidden}", text)
    if "=" in text and ("?" in text or "&" in text):
        text = re.sub(_SIGNED, lambda found: f"{found[1]}{hidden}" if _signs(found[2], found[3]) else found[0], text)
    return text


@cache
def _forms() -> tuple[tuple[str, str], ...]:
    """The table of forms: what each has in it, and its pattern."""
    lines = Path(__file__).with_name("secret_forms.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return tuple((fixed, form) for _, fixed, form in rows)


def _without_forms(text: str, hidden: str = HIDDEN) -> str:
    # No form has a space in it, and a table says the same words again and again, most of them shorter than any form.
    words = "\n".join(word for word in set(text.split()) if len(word) >= _SHORTEST_FORM)
    for fixed, form in _forms():
        if fixed in words and re.search(_START + form, words):
            text = re.sub(_START + form, lambda found: hidden if _drawn(found[0]) else found[0], text)
    return re.sub(_PEM, hidden, text) if "PRIVATE KEY" in text else text


def _drawn(value: str) -> bool:
    """Whether a value with one of AWS's prefixes has the entropy of a key: 3 bits a character, as gitleaks asks."""
    if not value.startswith(_AWS):
        return True
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts) >= 3  # noqa: PLR2004


def _signs(name: str, value: str) -> bool:
    return name.lower() in _SIGNATURES or is_secret(name, value)


def printed(text: str, others: Iterable[str] = (), hidden: str = HIDDEN) -> str:
    """A text without secrets by value, by form and by name (`TOKEN=...`).

    Args:
        text: Of one line, or several.
        others: Values of another process's variables that are secrets, see `secrets_of`, beside those of this one.
        hidden: What stands in their place.
    """
    return _printed(text, _sought(others), hidden)


def _printed(text: str, sought: tuple[str, ...], hidden: str = HIDDEN) -> str:
    if len(text) < SHORTEST:
        return text
    return (_hide_in_word if len(text) <= _WORD else _hide)(text, sought, hidden)


def _hide(text: str, sought: tuple[str, ...], hidden: str) -> str:
    for secret in sought:
        if secret in text:
            text = text.replace(secret, hidden)
    if re.fullmatch(_OF_RECORDS, text):
        return text
    text = _without_addresses(_without_forms(text, hidden), hidden)
    if "earer" in text or "asic" in text:
        text = re.sub(_BEARER, lambda found: f"{found[1]}{hidden}" if _opens(found[2], found[3]) else found[0], text)
    if any(command in text for command in ("curl", "mysql", "mariadb", "sshpass")):
        for command, option in _TAKEN:
            text = "".join(_without_taken(text, command, option, hidden))
    if "=" in text or ":" in text or "%3" in text:
        text = "".join(_without_named(text, _NAMED, hidden))
    if " " in text:
        if len(text.split(None, 2)) == 2:  # noqa: PLR2004 - `re` would look for the beginning all through a long text
            text = "".join(_without_named(text, _TWO_WORDS, hidden))
        text = "".join(_without_named(text, _OPTION, hidden)) if "-" in text else text
    if text.isascii() or (plain := _plain(text)) == text:
        return text
    shown = _hide(plain, sought, hidden)
    return text if shown == plain else shown


def _plain(text: str) -> str:
    """A text as it looks: without full width, accents, and what is not seen: an accent makes no other name."""
    import unicodedata

    apart = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in apart if unicodedata.category(letter) not in {"Mn", "Cf"})


_hide_in_word = lru_cache(4096)(_hide)  # names, versions and users stand in many a record


def _opens(scheme: str, value: str) -> bool:
    """Whether what follows `Basic` or `Bearer` is a login or a token, and no word."""
    if scheme.lower() == "bearer":
        return len(value) >= 2 * SHORTEST and re.search(r"\d|[a-z][A-Z]", value) is not None
    try:
        return b":" in base64.b64decode(value, validate=True)
    except ValueError:
        return False


def _without_taken(text: str, command: str, option: str, hidden: str) -> Iterator[str]:
    done = 0
    for found in re.finditer(option, text):
        before = re.split(r"[\n|;&]", text[max(found.start() - _NEAR, 0) : found.start()])[-1]
        value = re.compile(rf"[^{found[1]}\n]+" if found[1] else r"[^\s\"']+").match(text, found.end())
        if found.start() >= done and value and value[0][0] not in "$<*{%." and re.search(command, before):
            yield text[done : value.start()] + hidden
            done = value.end()
    yield text[done:]


def _without_named(text: str, form: str, hidden: str) -> Iterator[str]:
    done = 0
    for found in re.finditer(form, text):
        name = found[1]
        if found.start() < done or not (names_secret(name) or names_tokens(name)):
            continue
        end = min(len(text), found.end() + _SHORT) if found[2] == ":" else len(text)
        value = re.compile(_VALUE).match(text, found.end(), end)
        if value is None or len(value[0]) < 4 or not is_secret(name, value[0]):  # noqa: PLR2004
            continue
        opened = text[found.start(1) - 1 : found.start(1)] == "{"  # `{token: X}`
        if found[3] or _is_joined(name, found[2], value[0], opened=opened):
            yield text[done : value.start()] + hidden
            done = value.end()
    yield text[done:]


def _is_joined(name: str, joint: str, value: str, *, opened: bool) -> bool:
    """Whether what follows a name is its value: after a colon a sentence may go on, and after ` = ` there may be code.

    "unexpected token: x", "HF_TOKEN: expected a token"; "token = self.token". An image has a tag after its colon, and
    what a cookie is called stands before its value.
    """
    if joint == ":":
        ends = re.sub("[_-]", "", name.lower()).endswith(_TOLD)
        return bool(ends and re.search(r"\d", value) and not re.fullmatch(_TAG, value))
    if joint[0] == ":":
        told = opened or not name.isalpha() or (name.lower() in _ALWAYS and re.search(r"\d", value))
        told = told or (name.lower() == "cookie" and "=" in value)
        return bool(told and re.search(_UNLIKE_WORDS, value))
    if joint.isspace() or (joint[0].isspace() and joint[-1] not in "\"'"):
        return bool(re.search(_UNLIKE_WORDS, value)) and not re.fullmatch(_CODE_OF_PYTHON, value)
    return True


def holds(text: str) -> bool:
    """Whether a text holds a secret, see `printed`."""
    return printed(text) != text


class Stream:
    """Hides secrets in what comes piece by piece, such as a log: whole lines go on, the last part of one waits.

    Args:
        others: See `printed`.
    """

    LONGEST = 1 << 16  # bytes of a line that wait for its end

    def __init__(self, others: Iterable[str] = ()) -> None:
        self._others = tuple(others)
        self._rest = b""
        self._in_key = 0  # lines of a private key that were hidden

    def feed(self, block: bytes) -> bytes:
        """What of all that came may be shown now."""
        whole = self._rest + block
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        if len(whole) - end > self.LONGEST:
            end = len(whole)
        self._rest = whole[end:]
        return self._shown(whole[:end])

    def close(self) -> bytes:
        """The rest."""
        rest, self._rest = self._rest, b""
        return self._shown(rest)

    def _shown(self, block: bytes) -> bytes:
        if not block:
            return block
        if self._in_key or b"PRIVATE KEY" in block:
            block = b"".join(self._outside_keys(block))
        text = block.decode("utf-8", "surrogateescape")
        return printed(text, self._others).encode("utf-8", "surrogateescape")

    def _outside_keys(self, block: bytes) -> Iterator[bytes]:
        for line in block.splitlines(keepends=True):
            rest = line
            while rest:
                if self._in_key:
                    _, end, after = rest.partition(_PEM_END)
                    self._in_key = 0 if end or self._in_key == _PEM_LINES else self._in_key + 1
                    rest = after.partition(b"-----")[2]
                    continue
                found = re.search(_PEM_BEGIN, rest)
                yield rest[: found.start()] + HIDDEN.encode() if found else rest
                rest = rest[found.end() :] if found else b""
                self._in_key = 1 if found else 0


# Of addresses

_SCHEME = r"(?i)(?<![\w/.~@-])([a-z][a-z0-9+.-]*:/*)"  # with or without slashes: it may be mistyped
# All of them end at a comma: a list of remotes is told apart by these. Of an S3 key, which has slashes in it, the first
# colon tells that it is one.
_USER = rf"{_SCHEME}(?:[^/@,]*:[^,]*@|[^/,]*@)"
_POLICY = r"(?=(?::(?:r|w|rw))?(?:,|$))"
_QUERY = rf"{_SCHEME}(?<!file:)(?<!file:/)(?<!file://)(?<!file:///)([^,?]*)\?[^,]*?{_POLICY}"
# In a folder's name only what looks like one.
_PARAMETER = rf"([?#&;][\w.%~-]+=)[^,]*?{_POLICY}"


def address(text: str) -> str:
    """An address, or several with commas between them, as it may be shown.

    An address has no room for a secret, whichever scheme it has, also one that nobody knows: keys and tokens are looked
    for in the environment. A name, a password and a whole query are hidden, and tokens by their form; what may be done
    there (`:rw`) is not.
    """
    if re.search(r"[@?#&;_]", text):
        text = re.sub(_USER, rf"\1{HIDDEN}@", text)
        text = re.sub(_QUERY, rf"\1\2?{HIDDEN}", text)
        text = re.sub(_PARAMETER, rf"\1{HIDDEN}", text)
    return _without_forms(text)


def has_secret(text: str) -> bool:
    """Whether an address holds what may be one. A folder may be called anything, but for a token."""
    if re.match(r"[/~.]", text):
        return _without_forms(text) != text
    return address(text) != text


def setting(value: Any) -> Any:
    """A setting's value as it may be shown: texts in it are taken for addresses, and names tell secrets."""
    if isinstance(value, Mapping):
        return {
            address(str(name)): HIDDEN if is_secret(str(name), one) else setting(one) for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(setting(one) for one in value)
    return address(value) if isinstance(value, str) else value


# In values


def document(value: Any, others: Iterable[str] = ()) -> Any:
    """A JSON value without secrets, see `printed`; names tell them, and may be some."""
    return _document(value, _sought(others))


def _document(value: Any, sought: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _printed(value, sought)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        shown = {}
        for name, one in value.items():
            named, tells = _name(name, sought) if isinstance(name, str) else (name, False)
            shown[named] = HIDDEN if tells and is_secret(name, one) else _document(one, sought)
        return shown
    if isinstance(value, list | tuple):
        return [_document(one, sought) for one in value]
    return value


@lru_cache(4096)
def _name(name: str, sought: tuple[str, ...]) -> tuple[str, bool]:
    """A name as it may be shown, and whether it may be a secret's."""
    return _printed(name, sought), names_secret(name) or names_tokens(name)


def places(value: Any) -> dict[str, str]:
    """What tells a secret in each field of a JSON value that holds one: `{"hard.command.arguments.3": "--api-key"}`.

    That is an option, a name, or a variable of this process whose value it is; empty for what its form alone tells.
    """
    return dict(_places(value, "", _sought()))


def _places(value: Any, name: str, sought: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if is_secret(name, value):
            yield name, name.rpartition(".")[2]
        elif (shown := _printed(value, sought)) != value:
            yield name, _told_by(value, shown)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            inner = f"{name}.{key}" if name else str(key)
            if (shown := _document(key, sought)) != key:
                yield inner, _told_by(key, shown)
            else:
                yield from _places(one, inner, sought)
    elif isinstance(value, list | tuple):
        before: Any = ""
        for number, one in enumerate(value):
            if (
                isinstance(before, str) and re.fullmatch(r"-[\w.-]+", before) and is_secret(before, one)
            ):  # `--api-key X`
                yield f"{name}.{number}", before
            else:
                yield from _places(one, f"{name}.{number}", sought)
            before = one


def _told_by(text: str, shown: str) -> str:
    """The variable whose value a text holds, else the name before what is hidden of it."""
    for name, value in secrets_of(os.environ).items():
        if any(shape in text for shape in _shapes((value,))):
            return name
    found = re.search(rf"(-{{0,2}}[A-Za-z_][\w.-]*)(?:[=:\s\"'\\]|%3[Dd]){{1,6}}{re.escape(HIDDEN)}", shown)
    return found[1] if found and names_secret(found[1]) else ""
