"""Secrets that are told by the name of what holds them: a variable, an option, a field, a word before a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise

SHORTEST = 8  # characters of a variable's value that is looked for everywhere: shorter ones are words, too


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of what holds a secret, in words: `apiKey` and `X-Api-Key` are `api key`.
_NAME_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"
_ALWAYS = _words("password passwd passphrase webhook webhooks")
# What stands behind a secret's name and changes nothing: HF_TOKEN_2, TOKEN_PROD; and in variables SECRET_KEY_BASE.
_BEHIND = _words("dev prod production read staging v write")
_BEHIND_CAPITALS = _BEHIND | _words("admin backup bedrock base config data id json main new old pem ro rw test")
_LAST = _words("""
    secret secrets credential credentials cred creds dsn pwd pw passcode apikey accesskey secretkey privatekey authtoken
    authorization bearer auth oauth passwords cookie netrc sas jwt psk
""")
_GLUED = (
    *("password", "passwd", "apikey", "secretkey", "accesskey", "hookurl", "sessionid", "sessid"),
    *("authkey", "licensekey", "licencekey"),
    *("accesstoken", "apitoken", "authtoken", "bottoken", "hftoken", "hubtoken", "sessiontoken"),
)
_NO_SECRETS = _words("PWD OLDPWD XDG_SESSION_ID TERM_SESSION_ID ITERM_SESSION_ID")
# What other tokens and keys are: a tokenizer's words, columns of a table, what something is sorted or found by. Some
# are of services, too: as variables always, else where the value looks random, as no word of a tokenizer does.
_SERVICES = _words("bot system trigger user")
_PLAIN_TOKENS = _words("""
    audio beg begin blank boi bos bot class cls concept decoder delimiter doc document end eoi eos eot fim first go
    human image img initializer instance instruction last line mask middle modifier new next pad per placeholder
    pool prefix query response sep separator soft sos space special start stop suffix system tag text think tool
    train trigger unk user video word
""")
_PLAIN_KEYS = _words("""
    answer answers audio batch best cache candidate caption checkpoint checkpoints choice chosen code column compile
    config content context dataset data doc document experiment experiments feature field file foreign graph group hash
    history id image images index input inputs item join json label labels lookup loss mask message messages metric
    model module monitor name node option order output outputs param partition pixel primary prompt public question
    record rejected response rng routing row sample score select sequence shard sort source split state store summary
    tag target task text title tree video weight weights
""")
# What a name may say beside something else, `TOKEN_HF`; and behind what it tells of something about that.
_HOLD = _words("apikey apikeys credential credentials secret secrets token tokens")
_ABOUT = _words("""
    class classification count counts digest dir embedding embeddings file format hash id ids index kind length level
    map mask metric model name names path position positions sha size type types url uri
""")
_PLAIN_GLUED = _words("bypass compass hotkey key pubkey publickey sortkey")  # and so do KEY and others in capitals
# Keys that open something. What another one is, its name does not say.
_OPENING_KEYS = _words("""
    access account api app application auth client consumer deploy encryption hmac license master private secret
    service signing ssh storage wandb
""")
_FORGES = _words("azure devops gh github gitlab") | {""}
# Of variables only: elsewhere these are what is done, and what something is pinned to.
_CAPITALS = _words("dbpass otp pass pat pgpass pin")
_CODE = r"(?:.*[._-])?(?:OTP|PIN)"  # the value of such a one is a number
_PASS = _words("db email ftp http https key mail mysql pg postgres proxy redis sftp smtp ssh user")
_STORES = _words("""
    amqp broker clickhouse database db mongo mongodb mysql pg postgres postgresql rabbitmq redis sqlalchemy
""")
_PAIRS = {
    "key id", "api keys", "api tokens", "access keys", "access tokens", "auth tokens", "connection string", "conn str",
    "conn string", "sas url",
    "auth header", "secret access", "token value", "session id", "hook url", "hook uri", "hooks url", "chat hook",
    "discord hook", "incoming hook", "slack hook", "teams hook",
}  # fmt: skip
# The values of tokens that are most often a tokenizer's.
_LONG = 16
_PART = 1 << 16  # characters
_DRAWN = rf"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[\w+/=~.:-]{{10,}}|(?=.*\d)(?=.*[a-z])[a-z\d]{{{_LONG},}}"
# What looks like that, and is words with numbers, or a relative path; so is one random text of 16 characters in 1,000.
_WORDS_OR_PATH = (
    r"(?=.*[A-Z])(?:(?:[A-Z]?[a-z]{2,}(?![a-z])\d{0,4}[._/-]?)+|[a-z][a-z_-]{2,}/[\w./-]+|[\w./-]+\.[a-z][a-z\d]{1,6})"
)
# Values that say nothing: words for yes, no and nothing, numbers, places that wait for a value, a tokenizer's words.
_IDLE = (
    r"(?i)|true|false|yes|no|on|off|none|null|bearer|basic|-?[\d.]+|\*+|\.{3}|…|<[\w .:-]*>?|<.*>|\[[A-Z_]*\]?"
    r"|\$(?:\w+|\{\w+\}|\(.*)|%\w+%|@\w+@|\{+[\w. $()-]*\}*|[xX]{3,}|your\W.*"
)
_UNLIKE_WORDS = r"\d|[a-z][A-Z]|[^\w.,;:!?'-]|\w{20}"
_NUMBERS = r"[\d.:+/ -]+"  # dates, times and versions, too
_PATH = r"(?:~|\.{1,2})/.*|/[A-Z]?[a-z\d_.-]+(?:/.*)?"  # /mnt/x; not /kQ3+Zm, as a key in base64 may begin
_NO_WORD = r"\d|[^\w.,;:!?' -]"  # beside others in a list, or in a call, a word may be a name: `environ["HF_TOKEN"]`
_OF_A_VARIABLE = r"[A-Z\d]+(?:_[A-Z\d]+)+"
_PLAIN_ADDRESS = r"[a-z][a-z\d+.-]*://[^@?#]*"  # one without a login and a query
_KNOWN = f"{_PATH}|{_PLAIN_ADDRESS}|{_WORDS_OR_PATH}"


@lru_cache(4096)
def names_secret(name: str) -> bool:
    """Whether what is called so is a secret: `HF_TOKEN`, `--api-key`, `DATABASE_URL`; not `pad_token_id`."""
    name = plain(name)
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


@lru_cache(4096)
def names_tokens(name: str) -> bool:
    """Whether a name leaves it to the value whether that is a secret.

    `--bot_token`, `tokens`, `TOKEN_HF`, `hf_tokens.0`, `SIGNKEY`, an option `--key`, `--license`; not `stop_tokens`,
    `token_type_ids`.
    """
    if re.fullmatch("--?(?:key|login|otp|pin|serial)|(?:--?)?licen[cs]e", name):
        return True
    if not re.search("(?i)token|secret|credential|apikey|salt|key|pass", name):
        return False
    name = re.sub(r"(?:\.\d+|\[\d+\])+\Z", "", name)  # of a list
    words = [word.lower() for word in re.findall(_NAME_WORDS, name)]
    if name[-6:].lower().endswith(("token", "tokens")):
        return words[-1] != "tokens" or name.isupper() or words[-2:][0] not in _PLAIN_TOKENS - _SERVICES
    own = name.rpartition(".")[2]
    if not own.isupper() and (not own.islower() or words[-1] in _ABOUT):
        return False
    words = [word.lower() for word in re.findall(_NAME_WORDS, own)]
    if not words:  # `token.É`
        return False
    told = own.isupper() and words[-1] not in _PLAIN_GLUED and words[-1].endswith(("key", "pass", "salt"))
    return told or not _HOLD.isdisjoint(words)


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
        return is_drawn(value) and names_tokens(name)
    return re.fullmatch(_IDLE, value) is None or (value.isdecimal() and re.fullmatch(_CODE, name) is not None)


def hides(name: str, value: object) -> bool:
    """Whether one of several values of a name, or one in a call, is a secret by that name: a word, a name is none."""
    text = value if isinstance(value, str) else ""
    return bool(re.search(_NO_WORD, text)) and is_secret(name, text) and not re.fullmatch(_OF_A_VARIABLE, text)


@lru_cache(1)  # one text is asked about several times in turn
def words_of(text: str) -> str:
    """The words of a text, each of them once and with a space behind it: a table says the same ones again and again."""
    words, at = set[str](), 0
    while at < len(text):  # in parts that a processor's cache holds
        end = text.find("\n", at + _PART) + 1 or len(text)
        words.update(text[at:end].split())
        at = end
    return f"{' '.join(words)} "


def is_drawn(value: str) -> bool:
    """Whether a value looks random, and neither like words with numbers nor like a place."""
    return re.fullmatch(_DRAWN, value) is not None and re.fullmatch(_KNOWN, value) is None


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


# Colours and other orders to a terminal (ECMA-48 5.4), as they are and as JSON, Python and shells escape them; and what
# JSON may escape of printable ASCII. A backslash of JSON's may be escaped again.
_ORDER = r"(?:\x1b|\\{1,4}(?:u001[Bb]|x1[Bb]|033|e))(?:\[[0-?]*[ -/]*[@-~]|[()][A-Z0-9])"
_ESCAPED = r"\\{1,4}(?:/|u00([2-7][0-9A-Fa-f]))"


def plain(text: str) -> str:
    """A text as it looks: without colours, JSON's escapes, full width, accents, and what is not seen.

    None of these makes another name, or no secret of one.
    """
    if "\x1b" in text or "\\" in text:
        text = re.sub(_ESCAPED, _unescaped, re.sub(_ORDER, "", text))
    if text.isascii():
        return text
    import unicodedata

    apart = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in apart if unicodedata.category(letter) not in {"Mn", "Cf"})


def _unescaped(found: re.Match[str]) -> str:
    letter = chr(int(found[1], 16)) if found[1] else "/"
    # JSON stays JSON: neither does a text in it end here, nor does another escape begin.
    return {'"': "'", "\\": found[0], "\x7f": found[0]}.get(letter, letter)


# A name with what joins it to a value, as programs print them: `NAME=value`, `"name": "value"`, `Header-Name: value`,
# `name: "value"`, `name : value`, `name: !!str value`, `name: str = "value"`, `name = value`, `environ['NAME'] =
# 'value'`, `name%3Dvalue`, `name:value`, `name:"value"`, `-Dname=value`, `<name>value</name>`; perhaps with a header's
# word: `Authorization: token X`. A quote may have a prefix, as Python's and the shell's have: `b"value"`, `$'value'`.
_QUOTE = r"(?:[BbFfRrUu]{1,2}|\$)?\\{0,3}(?:\"\"\"|'''|[\"'])"
_NAMED = (
    r"(?:(?<![\w$%])(?<!\$\{)(?:(?<=-)D)?|(?<=%[0-9A-Fa-f]{2}))([A-Za-z_][\w.-]{0,99})(?:\[\d{1,9}\])?(?![\w.-])"
    rf"([ \t]{{0,20}}\+?=[ \t]{{0,20}}{_QUOTE}|\+?=|[\"']=[\"']?"
    rf"|[ \t]{{1,20}}(?:[:=+?]?=|=>)[ \t]{{1,20}}(?:{_QUOTE})?|[\"']\][ \t]{{0,20}}=[ \t]{{0,20}}(?:{_QUOTE})?|%3[Dd]"
    rf"|\\{{0,3}}[\"']\s*:\s*(?:{_QUOTE}|(?=[\w.]{{0,40}}[\[({{]))"
    rf"|[ \t]{{0,20}}:[ \t]+(?:!\S{{1,60}}[ \t]+"
    rf"|(?:[\w&.|\[\], ]{{1,60}}|[\"'][\w&.|\[\], ]{{1,60}}[\"'][ \t]?)=[ \t]{{0,20}}(?={_QUOTE}))?"
    rf"(?:{_QUOTE})?"
    r"|:(?:(?=[^\s:/\"'])|(?=\"[^\s\"',]+\"|'[^\s\"',]+')[\"'])|>(?=[^<>\s]+</)"
    r")((?:(?i:apikey|basic|bearer|digest|negotiate|token)[ \t]+)?)"
)
# What may stand between that and a value in quotes: a list, a call, `["value", …`, `Some(Token { inner: "value" …`; and
# what stands between two values of a list.
_WRAPPED = rf"(?:[\w.:&]{{0,60}}[ \t]?[\[({{]\s{{0,40}}(?:[\"']?\w{{1,40}}[\"']?[:=][ \t]?)?){{1,3}}{_QUOTE}"
_NEXT = rf"\\?[\"'](?:[ \t]*,\s{{0,40}}|[ \t]{{1,20}}){_QUOTE}"
# `--name value`, inside of one text, and `'--name', 'value'`, as Python shows a command's words. What stands before the
# first character is looked at after that: so `re` jumps from one to the next.
_OPTION = rf"(-(?<![\w-]-)-?[A-Za-z][\w.-]{{0,99}})([ \t]+(?:{_QUOTE})?|{_NEXT})()"
_OPTIONS = r"-(?<![\w-]-)-?[A-Za-z]"  # where one may be: most texts have none
_PAIR = rf"\({_QUOTE}([A-Za-z_][\w.-]{{0,99}})({_NEXT})()"  # `("NAME", "value")`, as in `os.environ.items()`
_TWO_WORDS = r"\A([A-Za-z][\w.-]{0,99})([ \t]+)()(?=\S*\d)(?=\S{8,}\Z)"  # all of a text: `--set "api_key X"`
_CODE_OF_PYTHON = r".*[(\[{].*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"  # what follows `token = `, where that is no value
_TYPE = r"[A-Za-z]\w*\[\w*"  # `token: Optional[str]`
_VALUE = r"(?<=\")[^\"\\]+|(?<=')[^'\\]+|(?<=\w>)[^<]+|\$\{\w*\}|[^\s\"',;&)}\]`]+"
# By `name:value`, where the value has a digit.
_TOLD = ("token", "password", "passwd", "secret", "psk", "apikey", "accesskey", "secretkey", "privatekey")
# What may be a value drawn by lot, and how far before it the name of a secret is looked for: in characters, in words. A
# plain word is one only right before it: "a token of Gemma3nAudioModel" is prose. So are two words ("API KEY: X"), and
# "password is X" and `wandb login X` say the same as `password X`.
_WORD, _NAME, _BEFORE, _WORDS_BEFORE = r"[\w+/~.-]{10,500}={0,2}", r"[A-Za-z_][\w.-]*", 80, 8
_FILLS = {"are", "is", "p", "u", "was"}  # the letters are options, as in `docker login -p X`
_SECRET_FOLLOWS = {"login", "relogin"}
_SHORT = 200  # characters of such a value: `token:token:...` has one behind each colon
_TAG = r"[vr]?\d[\w.-]{0,20}|latest.*"


def without_named(text: str, hidden: str) -> str:
    """A text without the values that stand behind the names of secrets: `TOKEN=...`, `--api-key ...`."""
    if "=" in text or ":" in text or "%3" in text or "</" in text:
        text = "".join(_without(text, _NAMED, hidden))
    if " " in text or "," in text:
        if len(text.split(None, 2)) == 2:  # noqa: PLR2004 - `re` would look for the beginning all through a long text
            text = "".join(_without(text, _TWO_WORDS, hidden))
        text = "".join(_without(text, _OPTION, hidden)) if re.search(_OPTIONS, words_of(text)) else text
        text = "".join(_without(text, _PAIR, hidden)) if "(" in text else text
    return "".join(_without_drawn(text, hidden))


def _without_drawn(text: str, hidden: str) -> Iterator[str]:
    """A text without what looks drawn by lot and stands shortly behind the name of a secret, whatever is between them.

    So no form has to be known: a type (`token: Annotated[str, ...] = "X"`), a call, a table, a sentence.
    """
    done = 0
    words = re.findall(_WORD, words_of(text))
    drawn = any(is_drawn(word) for word in words if len(word) >= _LONG or not word.islower())  # no other one can be
    for found in re.finditer(_WORD, text) if drawn else ():
        if is_drawn(found[0]):
            before = re.findall(_NAME, text[max(found.start() - _BEFORE, 0) : found.start()].rpartition("\n")[2])
            last = [name for name in before if name.lower() not in _FILLS][-2:]
            near = [*last[-1:], "_".join(last), *(name for name in before[-_WORDS_BEFORE:-1] if not name.isalpha())]
            for name in before[-_WORDS_BEFORE:]:  # the name of a secret in another: `MY_HF_TOKEN_FOR_CI`
                near += map("_".join, pairwise(re.split(r"[\W_]+", name)))
            if not _SECRET_FOLLOWS.isdisjoint(last) or any(map(surely_secret, near)):
                yield text[done : found.start()] + hidden
                done = found.end()
    yield text[done:]


def _without(text: str, form: str, hidden: str) -> Iterator[str]:
    done = 0
    for found in re.finditer(form, text):
        name = found[1]
        if found.start() < done or not (names_secret(name) or names_tokens(name)):
            continue
        opened = text[found.start(1) - 1 : found.start(1)] == "{"  # `{token: X}`
        for joint, value in _values(text, found):
            if len(value[0]) < 4 or not is_secret(name, value[0]):  # noqa: PLR2004
                continue
            if found[3] or _is_joined(name, joint, value[0], opened=opened):
                yield text[done : value.start()] + hidden
                done = value.end()
    yield text[done:]


def _values(text: str, found: re.Match[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """What may be the value of a name that was found, each with what joins it to the name: of a list, all that it has.

    Nothing of what a value in quotes is wrapped in is the value: `Secret("X")`.
    """
    joint, at, value = found[2], found.end(), re.compile(_VALUE)
    wrapped = re.compile(_WRAPPED).match(text, at) if joint and joint[-1] not in "\"'" else None
    if wrapped is None:
        end = min(len(text), at + _SHORT) if joint == ":" else len(text)
        bare = re.fullmatch(r"\\?[\"']\s*:\s*", joint)  # `"name": value`: a number, an object
        if not bare and (one := value.match(text, at, end)):
            yield joint, one
        return
    if "=" in joint and joint[0].isspace() and wrapped[0][0] not in "[({":
        return  # code: `token = get("x")`
    after: re.Match[str] | None = wrapped
    while after is not None:
        at = after.end()
        if one := value.match(text, at):
            at = one.end()
            if hides(found[1], one[0]):
                yield joint + '"', one
        after = re.compile(_NEXT).match(text, at)


def _is_joined(name: str, joint: str, value: str, *, opened: bool) -> bool:
    """Whether what follows a name is its value: after a colon a sentence may go on, and after ` = ` there may be code.

    "unexpected token: x", "HF_TOKEN: expected a token"; "token = self.token". An image has a tag after its colon, and
    what a cookie is called stands before its value.
    """
    if "," in joint:
        return hides(name, value)
    if joint == ":":
        ends = re.sub("[_-]", "", name.lower()).endswith(_TOLD)
        return bool(ends and re.search(r"\d", value) and not re.fullmatch(_TAG, value))
    if joint.lstrip().startswith(":") and ":=" not in joint:
        told = opened or not name.isalpha() or is_drawn(value) or (name.lower() in _ALWAYS and re.search(r"\d", value))
        told = told or (name.lower() == "cookie" and "=" in value)
        return bool(told and re.search(_UNLIKE_WORDS, value)) and not re.fullmatch(_TYPE, value)
    if joint.isspace() or (joint[0].isspace() and joint[-1] not in "\"'"):
        return bool(re.search(_UNLIKE_WORDS, value)) and not re.fullmatch(_CODE_OF_PYTHON, value)
    return True
