"""Secrets that are told by their form: keys and tokens by a part of their own, logins by where they stand.

Keys and tokens are a table, `forms.txt`: digests, base64 and names of modules look like any secret that has no part of
its own. Such a one is told by the name of what holds it (`WANDB_API_KEY`). No package has such a table that could be
asked: gitleaks is a program in Go, and detect-secrets 1.5 knows 20 kinds, none of Hugging Face, and needs `requests`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from .names import SHORTEST, is_drawn, is_secret, words_of

# Repetitions have limits where a stranger's line could make them quadratic.
# A pattern is compiled where its fixed part is in a text, as `plan` must be fast: so are all below.
# Also after an escape of JSON's or an address's.
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
# A word in capitals has the form of these, too: they must look random.
_AWS = ("A3T", "AKIA", "ASIA", "ABIA", "ACCA")
_SHORTEST_FORM = 15  # characters of the shortest that any form of the table takes
_PEM = r"(?s)-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY[^-]{0,40}-----(?:(?!-----BEGIN).)*?(?:-----END[^-]*-----|\Z)"
# A name and a password, in any address. A password may have slashes in it; a port and a path are none.
_LOGIN = r"(?<=://)(?!USER:PASSWORD@)[^/\s@:\[()?\"'<>]{0,200}:(?!\d{1,5}[/?#])[^\s\"'<>]{0,500}(?=@)"
# A token alone, as `git clone` takes it: long, and no name of words.
_LONE = r"(?<=://)(?=[^/\s@]*\d)(?=[^/\s@]*[A-Za-z])[A-Za-z0-9_~%+-]{20,500}(?=@)"
_SIGNATURES = {"sig", "signature", "x-amz-signature", "x-amz-credential", "x-goog-signature", "x-goog-credential"}
_SIGNED = r"([?&;#](?:amp;)?([\w.%~-]{1,99})=)([^&\s\"'<>#;]+)"
# What signs something, wherever a text names it: `sig=…`, `X-Amz-Signature=…`.
_SEAL = r"(?i)(?<![\w.-])((?:x-(?:amz|goog)-)?(?:sig|signature|hmac)=)([\w%+/~.-]{16,999}={0,2})"
# Passwords that well-known commands take: `curl -u ann:<PW>`, `mysql -p<PW>`, `sshpass -p <PW>`. A reference is none.
# Of each, what the words of the command or of the option always have in them (one of these), and both as patterns.
_TAKEN = (
    (("curl",), r"\bcurl\b", r"\s(?:-[fgikLnNqsSv#]*[uU]|--(?:proxy-)?user)[\s=]?([\"']?)[^\s:\"']{1,99}:"),
    (
        ("http ", "https ", "xh ", "xhs "),
        r"(?:^|\s)(?:https?|xhs?)(?:\s|$)",
        r"\s(?:-a|--auth)[\s=]?([\"']?)[^\s:\"']{1,99}:",
    ),
    (
        ("mysql", "mariadb"),
        r"\b(?:mysql|mysqldump|mysqladmin|mysqlimport|mysqlsh|mariadb)\b",
        r"\s-p(?!ort(?:\b|\d))([\"']?)",
    ),
    (("sshpass",), r"\bsshpass\b", r"\s-p\s*([\"']?)"),
    (
        ("smbclient", "smbget", "rpcclient", "winexe"),
        r"\b(?:smbclient|smbget|rpcclient|winexe)\b",
        r"\s-U[\s=]?([\"']?)[^\s%\"']{1,99}%",
    ),
    (("redis-cli",), r"\bredis-cli\b", r"\s(?:-a|--pass)[\s=]([\"']?)"),
    (("openssl",), r"\bopenssl\b", r"\s-pass(?:in|out)?[\s=]([\"']?)pass:"),
    (("openssl",), r"\bopenssl\s+enc\b", r"\s-k\s+([\"']?)"),
    (("lftp",), r"\blftp\b", r"\s-u\s+([\"']?)[^\s,\"']{1,99},"),
    (("zip",), r"(?<![\w.-])(?:un)?zip\b", r"\s-P\s*([\"']?)"),
    (("rar", "7z"), r"(?<![\w.-])(?:(?:un)?rar|7z[ar]?)\b", r"\s-h?p([\"']?)"),
    (("keytool", "jarsigner"), r"\b(?:keytool|jarsigner)\b", r"\s-(?:src|dest)?(?:store|key)pass\s+([\"']?)"),
    (("sqlplus", "sqlldr", "expdp", "impdp"), r"\b(?:sqlplus|sqlldr|expdp|impdp)\b", r"\s([\"']?)[^\s/@\"']{1,99}/"),
    (("ossutil", "obsutil"), r"\b(?:ossutil|obsutil)(?:64)?\b", r"\s-k[\s=]?([\"']?)"),
    (
        ("sqlcmd", "tsql", "bcp", "ipmitool", "yubico-piv-tool", "mosquitto_"),
        r"\b(?:sqlcmd|tsql|bcp|ipmitool|yubico-piv-tool|mosquitto_[a-z]{1,9})\b",
        r"\s-P\s*([\"']?)",
    ),
    (("ldap",), r"\bldap[a-z]{1,9}\b", r"\s-w\s*([\"']?)"),
    (
        (
            *("conan", "psexec", "beeline", "hdbsql", "cbq", "rabbitmqadmin", "ncftp", "useradd", "usermod", "twine"),
            *("poetry", "mongo", "cqlsh", "login"),
        ),
        (
            r"\b(?:conan\s+(?:remote\s+login|user)|psexec(?:64)?|beeline|hdbsql|cbq|rabbitmqadmin|ncftp[a-z]{0,3}"
            r"|user(?:add|mod)|twine\s+upload|poetry\s+publish|mongo[a-z]{0,9}|cqlsh|(?:az|docker|podman|buildah|skopeo|oras|crane|registry|cosign)\s+login)\b"
        ),
        r"\s-p[\s=]([\"']?)",
    ),
    (("freerdp",), r"\b[wx]l?freerdp3?\b", r"\s/p:([\"']?)"),
    (("dotnet",), r"\bdotnet\s+nuget\s+push\b", r"\s-k\s+([\"']?)"),
    (("swaks",), r"\bswaks\b", r"\s-ap\s+([\"']?)"),
    (("-xp",), r"(?i)\bsendemail\b", r"\s-xp\s+([\"']?)"),
    (
        ("steamcmd", "mega-login"),
        r"\b(?:steamcmd|mega-login)\b",
        r"(?:\s\+login|(?<=mega-login))\s+[^\s-]\S{0,200}\s+([\"']?)",
    ),  # a user
    (("using",), r"\bdb2\b", r"\suser\s+\S{1,99}\s+using\s+([\"']?)"),
    (
        ("mc ",),
        r"\bmc\s+(?:alias|config\s+host)$",
        r"\s(?:set|add)(?:\s+[^\s-]\S{0,200}){3}\s+([\"']?)",
    ),  # a name, an address, a user
    (
        ("htpasswd",),
        r"\bhtpasswd\b",
        r"\s-(?=\w{0,9}b)(?!\w{0,9}n)\w{1,9}(?:\s+[^\s-]\S{0,200}){2}\s+([\"']?)",
    ),  # a file, a user
    (
        ("htpasswd",),
        r"\bhtpasswd\b",
        r"\s-(?:\w{0,9}n\w{0,9}\s+-\w{0,9}b|\w{0,9}n\w{0,9}b|\w{0,9}b\w{0,9}n)\w{0,9}\s+[^\s-]\S{0,200}\s+([\"']?)",
    ),  # no file
    (("password",), r"\bmachine\s+[\w-]+\.[\w.-]+\s+login\s+\S+$", r"\spassword\s+([\"']?)"),  # a line of a netrc file
    (
        ("username",),
        r"\\?\"username\\?\"\s*:\s*\\?\"[^\"]{1,99}\"\s{0,9},$",
        r"\s{0,9}\\?\"key\\?\"\s{0,9}:\s{0,9}\\?(\")",
    ),  # Kaggle's file
)
_NEAR = 300  # characters between a command and its option
_BETWEEN = "\x1f"  # words of a list: a space to `re`
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


def without_forms(text: str, hidden: str) -> str:
    """A text without keys and tokens, logins in addresses, in headers and of commands, and signatures in links."""
    text = _without_addresses(without_keys(text, hidden), hidden)
    if "earer" in text or "asic" in text:
        text = re.sub(_BEARER, lambda found: f"{found[1]}{hidden}" if _opens(found[2], found[3]) else found[0], text)
    return _without_taken(text, hidden)


def without_taken(words: Sequence[str], hidden: str) -> list[str]:
    """The words of a command without the passwords that it takes: of each only what stands before it."""
    text = _BETWEEN.join(word.replace(_BETWEEN, " ") for word in words)
    return _without_taken(text, hidden, _BETWEEN).split(_BETWEEN) if words else []


def without_keys(text: str, hidden: str) -> str:
    """A text without keys and tokens, those of the table and private ones."""
    # No form has a space in it, and most words are shorter than any form.
    words = "\n".join(word for word in words_of(text).split() if len(word) >= _SHORTEST_FORM)
    for fixed, form in _forms():
        if fixed in words and re.search(_START + form, words):
            text = re.sub(_START + form, lambda found: hidden if _drawn(found[0]) else found[0], text)
    return re.sub(_PEM, hidden, text) if "PRIVATE KEY" in text else text


@cache
def _forms() -> tuple[tuple[str, str], ...]:
    """The table of forms: what each has in it, and its pattern."""
    lines = Path(__file__).with_name("forms.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return tuple((fixed, form) for _, fixed, form in rows)


def _drawn(value: str) -> bool:
    """Whether a value with one of AWS's prefixes has the entropy of a key: 3 bits a character, as gitleaks asks."""
    if not value.startswith(_AWS):
        return True
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts) >= 3  # noqa: PLR2004


def _without_addresses(text: str, hidden: str) -> str:
    if "@" in text and ":" in text:
        if "://" in text:
            text = re.sub(_LONE, hidden, re.sub(_LOGIN, hidden, text))
        text = re.sub(_PAIR, rf"\g<1>{hidden}", text)
        if "oracle:" in text:
            text = re.sub(_ORACLE, rf"\g<1>{hidden}", text)
    if "=" in text and ("?" in text or "&" in text):
        text = re.sub(_SIGNED, lambda found: f"{found[1]}{hidden}" if _signs(found[2], found[3]) else found[0], text)
    if "=" in text and re.search("(?i)(?:sig|signature|hmac)=", text):
        text = re.sub(_SEAL, lambda found: f"{found[1]}{hidden}" if _seals(found[2]) else found[0], text)
    return text


def _signs(name: str, value: str) -> bool:
    return name.lower() in _SIGNATURES or is_secret(name, value)


def _seals(value: str) -> bool:
    return is_drawn(re.sub("%[0-9A-Fa-f]{2}", "+", value))


def _opens(scheme: str, value: str) -> bool:
    """Whether what follows `Basic` or `Bearer` is a login or a token, and no word."""
    if scheme.lower() == "bearer":
        return len(value) >= 2 * SHORTEST and re.search(r"\d|[a-z][A-Z]", value) is not None
    import base64

    try:
        return b":" in base64.b64decode(value, validate=True)
    except ValueError:
        return False


def _without_taken(text: str, hidden: str, between: str = "") -> str:
    """A text without what commands in it take as passwords; between words of a list stands what is in none of them."""
    # Without this each pattern is tried at each character, which takes seconds for a table of 100,000 records.
    words = words_of(text)
    for fixed, command, option in _TAKEN:
        if any(one in words for one in fixed):
            text = "".join(_without_taken_by(command, option, text, hidden, between))
    return text


def _without_taken_by(command: str, option: str, text: str, hidden: str, between: str) -> Iterator[str]:
    done = 0
    for found in re.finditer(option, text):
        before = re.split(r"[\n|;&]", text[max(found.start() - _NEAR, 0) : found.start()])[-1]
        ends = between or (rf"{found[1]}\n" if found[1] else r"\s\"'")
        value = re.compile(f"[^{ends}]+").match(text, found.end())
        if found.start() >= done and value and value[0][0] not in "$<*{%." and re.search(command, before):
            yield text[done : value.start()] + hidden
            done = value.end()
    yield text[done:]
