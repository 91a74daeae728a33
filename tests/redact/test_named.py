"""A value behind a secret's name is hidden however programs print the two, and nothing else is."""

from __future__ import annotations

import pytest

from cachekit import redact


@pytest.mark.feature("T7")
def test_a_named_value_is_hidden_as_texts_have_it():
    for text in [
        "aws_secret_access_key = {}",
        "[default]\napi_key = '{}'",
        "password: {}",
        "PGPASS={}",
        'api_key : "{}"',
        'token : "{}"',
        "token: {}",
        "hf_token: '{}'",
        'AWS_SECRET_ACCESS_KEY:  "{}"',
        "{{hub_token: '{}', lr: 0.1}}",
        "HF_TOKEN: !!str {}",
        "Config(api_key: b'{}')",
        'said hf_token: \\"{}\\" and',
        "os.environ['API_KEY']='{}'",
        'os.environ["API_KEY"] = "{}"',
        "https://host/x?a=1%26token%3D{}",
        "run --token {} on it",
        "run '--hub-token  {}'",
        "{{hub_token: {}, lr: 0.1}}",
        "{{'api_key': b'{}'}}",
        'said token=\\"{}\\"',
        "Authorization: ApiKey {}",
        "--tokens {}",
        "--cred {}",
        "wandb.api_key {}",
        "--apikey:{}",
        "--client-secret-key:{}",
        'hf_token=b"{}"',
        "HF_TOKEN=$'{}'",
        "hf_token: u'{}'",
        'hf_token: !!python/str "{}"',
        'hf_token:"{}"',
        "Config(hf_token:'{}')",
        'hf_token := "{}"',
        'hf_token == "{}"',
        'hf_token => "{}"',
        "HF_TOKEN+={}",
        "<hf_token>{}</hf_token>",
        'HF_TOKEN: str = "{}"',
        "    hf_token: Optional[str] | None = '{}'",
        'let token: &str = "{}";',
        'HF_TOKEN: "Optional[str]" = "{}"',
        "+ train --hf-token '{}' --lr 1",
        "Command '['train', '--hf-token', '{}', '--verbose']' returned non-zero exit status 1",
        '["train","--hf-token","{}"]',
        "hf_token ='{}'",
        "hf_token= '{}'",
        "hf_token = f'{}'",
        'hf_token="""{}"""',
        "'--hf-token' '{}'",
        '{{"said": "{{\\\\"hf_token\\\\": \\\\"{}\\\\"}}"}}',
        "environ([('HF_TOKEN', '{}'), ('SHLVL', '1')])",
        'monkeypatch.setenv("HF_TOKEN", "{}")',
        "hf_token: `{}`",
        "const hf_token = `{}`;",
        'hf_token: Annotated[str, Field(description="for the Hub")] = "{}"',
        'hf_token="\\"{}\\""',
        '"hf_token" = "{}"',
        "hf_token= {}",
        "hf_token: |  {}",
        "export HF_TOKEN '{}'",
        'HF_TOKEN="$(echo {})"',
        "'--hf-token', PosixPath('{}')",
        "| HF_TOKEN | {} |",
        "HF_TOKEN;{}",
        "HF_TOKEN -> {}",
        "HF_TOKEN was {}",
        "HF_TOKEN?={}",
        "MY_HF_TOKEN_FOR_CI={}",
        "wandb login --relogin {}",
        "docker login -u me -p {}",
        "the password is {}",
        "API KEY: {}",
        "hf_token=<Secret {}>",
        "setattr(config, 'hf_token', '{}')",
        '<input name="hf_token" value="{}">',
        'name: HF_TOKEN, value: "{}"',
        '{{"Name": "HF_TOKEN", "Value": "{}"}}',
        "aws configure set aws_secret_access_key {}",
        "Token({})",
        "hf_token[0]='{}'",
        "hf_tokens[0]={}",
        "hf_tokens.0={}",
        "hf_tokens.0: '{}'",
        "secrets.0={}",
        "TOKEN_HF={}",
        "token_hf={}",
        "SECRET_HF: {}",
        "HASH_SALT={}",
        "SSHPASS={}",
        "MASTERKEY={}",
        "WANDBKEY={}",
    ]:
        value = "hunter2xLongA1"
        assert redact.printed(text.format(value)) == text.format(redact.HIDDEN)


@pytest.mark.parametrize("name", ["token.É", "key.Ä", "salt.Ü", "pass.Я"])
def test_a_name_may_end_in_letters_of_any_language(name):
    assert redact.printed(f"{name}=hunter2xLongA1").startswith(f"{name}=")


@pytest.mark.feature("T7")
def test_what_a_named_value_is_wrapped_in_is_shown_and_the_value_is_not():
    for text in [
        "Namespace(hf_token=['{}'])",
        '"hf_token": ["{}", "{}"]',
        'hf_token: ["{}"]',
        "hf_tokens: ['', '{}', '{}']",
        'hf_token = ["{}"]',
        'hf_token: ("{}")',
        '"hf_token": [\n  "{}",\n  "{}"\n]',
        'hf_token: Secret("{}")',
        'hf_token=Some("{}")',
        "hf_token=SecretStr(value='{}')",
        'hf_token=Some(Token {{ inner: "{}" }})',
        '{{"hf_token": {{"S": "{}"}}}}',
        "hf_token: {{'value': '{}'}}",
        'token=vault.get("{}")',
    ]:
        value = "hunter2xLongA1"
        assert redact.printed(text.format(value, value)) == text.format(redact.HIDDEN, redact.HIDDEN)


@pytest.mark.feature("T7")
def test_all_of_a_named_list_is_hidden_in_a_document_too():
    value = {"hf_tokens": ["", "hunter2xLongA1"], "secrets": ["HF_TOKEN", "word"], "stop_tokens": ["hunter2xLongA1"]}
    assert redact.document(value) == {**value, "hf_tokens": ["", redact.HIDDEN]}
    assert redact.places({"hard": value}) == {"hard.hf_tokens.1": "hf_tokens"}


@pytest.mark.feature("T7")
def test_a_secret_is_hidden_in_forms_that_passed_once():
    for text in [
        "db_user:{}@db.corp:5432",
        "user:{}@host",
        "trial:{}@node7",
        "--tokens=https://ann:{}@host/x",
        "--tokens=https://host/x?token={}",
        "//registry.npmjs.org/:_authToken={}",
        "g++ -DTOKEN={} -DAPI_KEY='{}'",
        "--cfg={{token: {}}}",
        "--set=db.password:{}",
        "token:{}",
        "--TOKEN:{}",
        "Authorization: Digest {}",
        "Cookie: session={}",
        "jdbc:oracle:thin:scott/{}@h",
        "run --psk {}",
        "--\uff54\uff4f\uff4b\uff45\uff4e={}",
        "--to\u200bken={}",
        "--t\u00f3ken={}",
        "caf\u00e9 --t\u00f3ken {} on it",
    ]:
        value = "Tr0ub4dor!xyz"
        assert value not in redact.printed(text.format(value, value))
        assert redact.holds(text.format(value, value))


def test_a_line_of_names_alone_costs_no_more_than_its_length():
    """Behind each name all the others would be a value: 22 s for 100,000, where that has no limit."""
    line = "token:" * 30_000
    assert redact.printed(line) == line


def test_ordinary_words_with_such_forms_pass():
    for words in [
        "team/auth:v1.2.3",
        "docker run registry/token:2026.11 train.py",
        "unexpected token: x1 in line",
        "unexpected token : 'x12ab9.cd'",
        "cookie: the jar of 3",
        "g++ -DNDEBUG=1 -DKEY_BITS=2048",
        "max_new_tokens:128 pad_token:[PAD]",
        "entra\u00eenement: \u00e9poque 3, perte = 0.25 \u2026 90%|\u2588\u2588\u258f| 12/13",
        "loss:0.25 epoch:3 step:1e5",
        "--overrides={lr: 1e-4, optim: adamw8bit}",
        "--train_tokens data/FineWeb10BT/train01 --eval_tokens FineWeb10BT/val_000001.bin",
        "--prompt_tokens Soft20Prompt8Tokens --instance_token Sks9Person2024",
        'hf_token=os.environ["HF_TOKEN_2"], verify_token=data.get("verifyToken")',
        'token = tokenizer("Hello 123456")',
        'def pull(hf_token: Optional[str] = None, password: str = ""):',
        '"secrets": ["HF_TOKEN", "WANDB_API_KEY"], "password": {"enabled": true}',
        'print("hf_token:", value1234)',
        "if token == tokens[0] or (token := self.next(12)): pass",
        "'pad_token': AddedToken('[PAD]'), 'token': tensor([1, 2])",
        "('HF_TOKEN', 'WANDB_API_KEY') ('token', 'label') {'api_key': {'type': 'string'}} HF_TOKEN= python train2.py",
        'bos_token: ["<s>"] special_tokens: ["Hello", "World123"] input_keys=["label_1"]',
        "the pad token of the model Gemma3nAudioEmbedder, a token in 3f1c0a9b7d5e2c4f6a8b",
        "HF_TOKEN is not set\nkey 3f1c0a9b7d5e2c4f6a8b, MODULE_12345678901234567890+e30acd3a",
        "HF_TOKEN is not set: only public models such as team/Qwen2VL7bInstruct can be read here",
        "if not token: pass\n\nclass AXK1DecoderLayer(DeepseekV3DecoderLayer):",
    ]:
        assert redact.printed(words) == words
