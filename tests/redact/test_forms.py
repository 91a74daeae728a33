"""Secrets are told by name and by form; what only looks like one passes."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import random
import re
import shlex
import string
import sys
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cachekit import redact
from cachekit.key.canonical import hashed, is_hashed
from cachekit.redact import Stream, forms, names
from cachekit.redact.names import is_secret, names_secret, secrets_of
from cachekit.store.layout import Place
from tests.support.planted_secrets import FORMS, PLAIN_NAMES, PLAIN_WORDS, SECRET_NAMES, VALUES

LOT = random.Random(7)
ALPHABET = st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f")


@pytest.mark.feature("T7")
def test_a_value_is_hidden_by_its_form_wherever_it_stands():
    for kind in VALUES:
        for place in ("{}", "said {} and went on", '{{"a": "{}"}}', "x={}", "['{}']", "https://host/{}/x", r"line\n{}"):
            if kind in {"login", "presigned"} and place not in {"{}", "said {} and went on", '{{"a": "{}"}}', "x={}"}:
                continue
            secret, value = VALUES[kind](LOT)
            shown = redact.printed(place.format(value))
            assert secret not in shown, place
            assert redact.HIDDEN in shown
            assert redact.printed(shown) == shown, "hiding twice is hiding once"


@pytest.mark.feature("T7")
def test_each_form_of_the_table_is_hidden():
    for start, characters, size, end in FORMS:
        secret = "".join(LOT.choices(characters, k=size))
        for text in (f"{start}{secret}{end}", f"--x={start}{secret}{end}", f'["{start}{secret}{end}", 1]'):
            assert secret not in redact.printed(text), text


@pytest.mark.feature("T7")
def test_a_name_tells_a_secret():
    for name in SECRET_NAMES:
        assert names_secret(name)
        value = "h7sh-" + "".join(LOT.choices(string.ascii_letters, k=12))
        for place in (f"{name}={value}", f'{{"{name}": "{value}"}}', f"export {name}='{value}'"):
            assert value not in redact.printed(place), place
        assert redact.document({"a": [{name: value}]}) == {"a": [{name: redact.HIDDEN}]}
        assert [*redact.places({"a": [{name: value}]})] == [f"a.0.{name}"]


def test_other_names_pass():
    for name in PLAIN_NAMES:
        assert not names_secret(name)
        assert redact.printed(f"{name}=something else1") == f"{name}=something else1"


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    "name", ["telegram_bot_token", "--discord-bot-token", "triggerToken", "IMAGE_TOKEN", "mytoken"]
)
def test_a_tokenizers_token_and_a_services_are_told_apart_by_the_value(name):
    for value in ("7h1sIsA5ecretV4lue", "7312345678:AAHdqTcv-H1vGWJxf", "be20d8dcc028677c931e04f3871a9b"):
        assert redact.printed(f"{name}={value}") == f"{name}={redact.HIDDEN}"
        assert [*redact.places(["run", f"--{name.lstrip('-')}", value])] == [".2"]
    for value in (
        "<|user|>",
        "<image>",
        "[USER]",
        "</s>",
        "\u2581user",
        "USER:",
        "<extra_id_10>",
        "USR1",
        "151655",
        "Human2",
    ):
        assert redact.printed(f"{name}={value}") == f"{name}={value}"
        assert not [*redact.places(["run", f"--{name.lstrip('-')}", value])]


@pytest.mark.feature("T7")
def test_what_signs_something_is_hidden_wherever_it_stands():
    for value in ["aB3dEf9hIjKlMn0pQr%2Bs%3D", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"]:
        for name in ["sig", "Signature", "hmac", "X-Amz-Signature", "x-goog-signature"]:
            for text in (f"{name}={{}}", f"sent se=2026&{name}={{}} to it", f"'{name}={{}}'"):
                assert redact.printed(text.format(value)) == text.format(redact.HIDDEN)


@pytest.mark.parametrize(
    "words",
    [
        "sig=inspect.signature",
        "signature=prefill_with_mask2",
        "token_type=Qwen2ForCausalLM",
        "tokens[0]=Bert2TokenizerFast",
        "max_tokens: 48",
        "num_tokens=1048576",
        "token_type_ids=int64[1,128]",
        "BertForTokenClassification=Qwen2ForTokenClassification",
        "TOKENS_SEEN=151655",
        "KEY=3f1c0a9b7d5e2c4f6a8b BYPASS=aB3dEf9hIjK PUBKEY=aB3dEf9hIjK",
        'salt = "aB3dEf9hIjKlMn0pQr"',
    ],
)
def test_words_about_tokens_and_signatures_pass(words):
    assert redact.printed(words) == words


def test_other_words_pass():
    for words in PLAIN_WORDS:
        assert redact.printed(words) == words
        assert not redact.holds(words)


@given(st.binary(max_size=64))
def test_digests_and_names_made_of_them_pass(raw):
    digest = hashlib.sha256(raw)
    number = int.from_bytes(digest.digest()[:8], "big")
    for words in (digest.hexdigest(), f"MODULE_{number}+{digest.hexdigest()[:8]}", f"key={digest.hexdigest()}"):
        assert redact.printed(words) == words


def test_a_switch_or_a_reference_is_no_secret():
    for value in ["1", "true", "$HF_TOKEN", "${HF_TOKEN}", "", "<s>", "***", "none", "..."]:
        assert not is_secret("HF_TOKEN", value)
        assert redact.printed(f"HF_TOKEN={value}") == f"HF_TOKEN={value}"


@pytest.mark.feature("T7")
def test_a_password_that_a_command_takes_is_hidden():
    for value in ["h7sh-hush", "12345678"]:
        for words in [
            "curl -s -u ann:{} https://host/x",
            "curl --user='ann:{}' x",
            "mysql -u root -p{} runs",
            "sshpass -p {} ssh host",
            "smbclient //host/share -U ann%{} -c ls",
            "CARD_PIN={}",
            "redis-cli -h host -a {} ping",
            "openssl enc -aes-256-cbc -k {} -in model.bin",
            "lftp -u ann,{} sftp://host",
            "zip -r -P {} model.zip model",
            "unzip -P {} model.zip",
            "az login --service-principal -u ann -p {} --tenant t",
            "openssl rsa -passin pass:{} -in k",
            "machine api.wandb.ai login user password {}",
            "unrar x -p{} model.rar",
            "7z a -p{} model.7z model",
            "sqlcmd -S host -U sa -P {} -Q x",
            "ldapsearch -x -D cn=ann -w {} -b dc=x",
            "twine upload -u ann -p {} dist/x.whl",
            "mongosh -u ann -p {} runs",
            "docker login -u ann -p {} registry.x",
            "mc alias set team https://host ann {}",
            "mc config host add team https://host ann {} --api S3v4",
            "htpasswd -b .htpasswd ann {}",
            "htpasswd -cb .htpasswd ann {}",
            "htpasswd -nbB ann {}",
            "htpasswd -n -b ann {}",
            "curl -sSu ann:{} x",
            "curl --proxy-user ann:{} x",
            "http -a ann:{} POST x",
            "mosquitto_pub -u ann -P {} -t runs",
            "cqlsh -u ann -p {}",
            'echo \'{{"username": "ann", "key": "{}"}}\' > kaggle.json',
            "keytool -list -keystore runs.jks -storepass {} -v",
            "keytool -importkeystore -deststorepass {} -v",
            "sqlplus -s ann/{} @runs.sql",
            "ossutil config -i id -k {} -e host",
            "mysqlsh --sql -p{} host",
            "winexe -U ann%{} //host cmd",
            "bcp runs out runs.csv -U ann -P {} -S host",
            "yubico-piv-tool -a verify-pin -P {}",
            "conan user ann -p {} -r team",
            "conan remote login team ann -p {}",
            "cosign login registry.x -u ann -p {}",
            "psexec host -u ann -p {} cmd",
            "beeline -u jdbc:x -n ann -p {} -e x",
            "ncftpput -u ann -p {} host . x",
            "useradd -p {} ann",
            "xfreerdp /u:ann /p:{} /v:host",
            "dotnet nuget push x.nupkg -k {} -s x",
            "swaks -a LOGIN -au ann -ap {} -t x",
            "sendEmail -xu ann -xp {} -t x",
            "steamcmd +login ann {} +quit",
            "mega-login ann {}",
            "db2 connect to runs user ann using {}",
        ]:
            assert redact.printed(words.format(value)) == words.format(redact.HIDDEN)
            listed = redact.document(forms.without_taken(shlex.split(words.format(value)), redact.HIDDEN))
            assert not [word for word in listed if value in word], "as a command comes in words"


def test_a_text_is_searched_only_for_the_commands_whose_words_are_in_it(monkeypatch):
    """Or a table of 100,000 records takes seconds: `az` is in names, and `db2` in keys."""
    searched = []

    def search(command, option, text, hidden, between):
        searched.append(command)
        yield text

    monkeypatch.setattr(forms, "_without_taken_by", search)
    table = "\n".join(f"{number:04x}db2a7c01  bert-amazon-polarity  9 min" for number in range(500))
    assert redact.printed(table) == table
    assert not searched
    redact.printed(f"{table}\nsshpass -p x ssh host")
    assert searched == [r"\bsshpass\b"]


def test_of_a_table_each_different_word_is_looked_at_once(monkeypatch):
    row, looked = ["bert-amazon-polarity", "neuronxcc-2.26.1026.0+0000001a", "2026-01-07"], []
    monkeypatch.setattr(names, "is_drawn", lambda word: looked.append(word) is not None)
    redact.printed(f"{' '.join(row)}\n" * 500)
    assert [looked.count(word) for word in row] == [1, 1, 1]


def test_no_form_is_shorter_than_what_is_looked_at():
    """Shorter words are passed over. Python's own parser of patterns tells how short one can be."""
    parser = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
    shortest = min(parser.parse(form).getwidth()[0] for _, form in forms._forms())
    assert shortest == forms._SHORTEST_FORM


@pytest.mark.feature("T7")
def test_a_value_that_looks_drawn_by_lot_is_hidden_beside_the_plain_ones():
    for text in [
        *("config:{}@node7", "--api_tokens={}", "--tokens={}", "--IMAGE_TOKENS={}", "ann:{}@db"),
        *("--tokens=/{}/aB3dE5gH", "--tokens data/{}+/=", "--instance_token {}", "--key {}", "'--otp', '{}'"),
        *("--license {}", "-license={}", "--licence {}", "--pin {}", "'--serial', '{}'"),
        *("--license-key {}", "-licensekey {}", "tailscale up --authkey={}"),
    ]:
        value = "kQ3hunter2xLongA1"
        assert value not in redact.printed(text.format(value))


@pytest.mark.feature("T7")
@pytest.mark.parametrize("text", ["Authorization=Basic {}", "'Authorization': 'Basic {}'", "said basic {} there"])
def test_a_login_in_base64_is_hidden_however_short(text):
    value = base64.b64encode(b"ann:pw1").decode()
    assert redact.printed(text.format(value)) == text.format(redact.HIDDEN)


@pytest.mark.feature("T7")
@pytest.mark.parametrize("words", ["sshpass -p '{}' ssh host", "curl -u 'ann:{}' x", 'mysql -u root -p"{}" runs'])
def test_a_password_in_quotes_is_hidden_to_its_end(words):
    assert redact.printed(words.format("a b c")) == words.format(redact.HIDDEN)


@pytest.mark.feature("T7")
@given(st.data())
def test_a_stream_hides_what_comes_in_pieces(data):
    """Wherever the pieces end; and a private key, which has many lines."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    lot = random.Random(data.draw(st.integers(0, 1 << 30)))
    made = [VALUES[kind](lot) for kind in kinds]
    known = "anything at all"
    raw = "\n".join(["begin", *(f"said {value} there" for _, value in made), f"and {known}!", "end"]).encode()
    stream, out, position = Stream([known]), b"", 0
    while position < len(raw):
        size = data.draw(st.integers(1, 200))
        out += stream.feed(raw[position : position + size])
        position += size
    out += stream.close()
    assert out.startswith(b"begin\n")
    assert out.endswith(b"\nend")
    for secret in (known, *(secret for secret, _ in made)):
        assert secret.encode() not in out


def test_a_streams_other_bytes_are_as_they_were():
    raw = b"10%|#   |\r20%|##  |\r\xff\xfe no text\r\n" + b"x" * (Stream.LONGEST + 1)
    stream = Stream()
    assert stream.feed(raw) + stream.close() == raw
    assert stream.feed(b"the last words") == b""
    assert stream.close() == b"the last words"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("/mnt/runs/a1", True),
        ("/usr/bin/env", True),
        ("./runs/a1", True),
        ("../runs/a1", True),
        ("~/runs/a1", True),
        ("runs/a1b2", False),
        ("/kQ3Zm8XbLw/abc+Y0pT7vN2dR9sK1uJ4hG6fE5c", False),  # a key in base64
    ],
)
def test_a_path_in_a_secret_variable_is_told_by_its_form_whether_or_not_it_is_there(tmp_path, monkeypatch, value, path):
    """Or the key of a command changes once its script has made the folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    before = secrets_of({"RUN_KEY": value})
    if not value.startswith(("/", "..")):
        Path(value).expanduser().mkdir(parents=True)
    assert bool(before) != path
    assert secrets_of({"RUN_KEY": value}) == before


@pytest.mark.feature("T7")
def test_values_of_secret_variables_are_looked_for(monkeypatch):
    said = {"WANDB_API_KEY": "correct horse", "HF_TOKEN": "short", "A": "b" * 9}
    assert secrets_of(said) == {"WANDB_API_KEY": "correct horse"}
    assert redact.document({"a": ["the correct horse"]}, ["correct horse"]) == {"a": ["the ***"]}
    assert redact.printed("the correct horse") == "the correct horse"
    monkeypatch.setenv("WANDB_API_KEY", "correct horse\n")  # as a file that was mounted has it
    assert redact.printed("the correct horse") == "the ***", "nobody hands over this process's own"
    assert redact.document({"correct horse": ["a correct horse"]}) == {"***": ["a ***"]}
    assert redact.places({"recipe": "x", "hard": {"a": ["correct horse"], "my correct horse": 1}}) == {
        "hard.a.0": "WANDB_API_KEY",
        "hard.my correct horse": "WANDB_API_KEY",
    }
    monkeypatch.delenv("WANDB_API_KEY")
    assert not redact.holds("the correct horse")


@pytest.mark.feature("T7")
@given(st.text(ALPHABET, min_size=8, max_size=40), st.binary(max_size=4), st.binary(max_size=4))
@example("<0000000", b"", b"")
@example("zq\"s/v'c+ val%9", b"ann:", b"")
@example("<0000000", b"", b"")
def test_a_value_is_found_however_a_text_has_it(secret, before, after):
    secret = f"{secret.strip()}z9/"
    assume(not re.match(r"(?i)(\.{0,2}|~)/|\$\(|your\W", secret))  # paths and references: docs/trust-rules.md
    raw = secret.encode()
    texts = [
        secret,
        json.dumps({"a": secret}),
        json.dumps(json.dumps([secret], ensure_ascii=False), ensure_ascii=False),
        repr([secret]),
        f"x {shlex.quote(secret)} y",
        f"https://host/?x={quote(secret)}&y",
        re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
        quote_plus(secret),
        quote(json.dumps(secret)),
        base64.b64encode(before + raw + after).decode(),
        base64.urlsafe_b64encode(before + raw + after).decode(),
        raw.hex(),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_SERVICE_TOKEN", secret)
        passed = [text for text in texts if not redact.holds(text) or secret in redact.printed(text)]
    assert not passed


@pytest.mark.parametrize(
    "value",
    ["true", "main", "development", "bert-base-uncased", "2026-11-23", "12345678", "2.13.0.1", "annemarie.v2", ""],
)
def test_a_common_value_is_no_secret_elsewhere(monkeypatch, value):
    """Of a variable that is called as if it were one."""
    monkeypatch.setenv("USER", "annemarie.v2")
    for name in ("MY_TOKEN", "CACHE_KEY", "DB_PASSWORD"):
        monkeypatch.setenv(name, value)
    assert not redact.holds(f"the {value} of somebody")


@pytest.mark.feature("T7")
def test_a_variables_hash_is_the_same_everywhere_and_tells_no_value():
    first = hashed("MINE", "a value")
    assert first == "scrypt:43a38a0e6df071fed69f172a3d88448e"
    assert is_hashed(first)
    assert len({first, hashed("OTHER", "a value"), hashed("MINE", "a valuE")}) == 3


def test_a_secret_that_is_hidden_already_is_not_found_again():
    for word in ("--apikey:{}", "--client-secret:{}", "--api_key={}", "wandb.api_key {}"):
        hidden = redact.printed(word.format("h7sh1hush"), hidden="<secret>")
        assert hidden == word.format("<secret>")
        assert [*redact.places(["run", hidden, "--set", "plain"])] == []


def test_in_a_tuple_with_names_a_secret_is_hidden_too():
    assert redact.document({"place": Place("inductor", "bert", f"hf_{'a1' * 20}")}) == {
        "place": ["inductor", "bert", redact.HIDDEN]
    }
