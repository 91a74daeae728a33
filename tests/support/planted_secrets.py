"""Secrets of thirty kinds, drawn by lot, and what looks like one and is none."""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random

LETTERS, DIGITS = string.ascii_letters, string.digits
ALNUM, UPPER = LETTERS + DIGITS, string.ascii_uppercase + "234567"
HEX = "0123456789abcdef"


def _form(start: str, characters: str, size: int, end: str = "") -> Callable[[Random], tuple[str, str]]:
    def make(lot: Random) -> tuple[str, str]:
        body = "".join(lot.choices(characters, k=size))
        return body, f"{start}{body}{end}"

    return make


def _jwt(lot: Random) -> tuple[str, str]:
    parts = ["".join(lot.choices(ALNUM, k=size)) for size in (30, 60, 43)]
    return parts[1], f"eyJ{parts[0]}.eyJ{parts[1]}.{parts[2]}"


def _pem(lot: Random) -> tuple[str, str]:
    lines = ["".join(lot.choices(ALNUM + "+/", k=64)) for _ in range(6)]
    return lines[3], "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----"])


def _aws(start: str) -> Callable[[Random], tuple[str, str]]:
    def make(lot: Random) -> tuple[str, str]:
        body = "".join(lot.sample(UPPER, 16))  # no character twice: it has the entropy of a key
        return body, start + body

    return make


# By kind: what draws a secret, and the value that it stands in.
VALUES: dict[str, Callable[[Random], tuple[str, str]]] = {
    "hugging face": _form("hf_", LETTERS, 34),
    "hugging face organisation": _form("api_org_", LETTERS, 34),
    "aws": _aws("AKIA"),
    "aws session": _aws("ASIA"),
    "bedrock": _form("ABSK", ALNUM, 120),
    "github": _form("ghp_", ALNUM, 36),
    "github oauth": _form("gho_", ALNUM, 36),
    "hugging face oauth": _form("hf_oauth_", ALNUM + "-_", 40),
    "gitlab runner": _form("glrt-", ALNUM, 20),
    "stripe": _form("rk_live_", ALNUM, 24),
    "google oauth": _form("ya29.", ALNUM + "-_", 60),
    "age": _form("AGE-SECRET-KEY-1", UPPER, 58),
    "shopify": _form("shpat_", HEX, 32),
    "tailscale": _form("tskey-auth-", ALNUM, 30),
    "groq": _form("gsk_", ALNUM, 52),
    "replicate": _form("r8_", ALNUM, 37),
    "pulumi": _form("pul-", HEX, 40),
    "jfrog": _form("AKCp8", ALNUM, 69),
    "doppler": _form("dp.pt.", ALNUM, 43),
    "github app": _form("ghs_", ALNUM, 36),
    "github fine-grained": _form("github_pat_", ALNUM + "_", 82),
    "gitlab": _form("glpat-", ALNUM + "-_", 20),
    "anthropic": _form("sk-ant-api03-", ALNUM + "-_", 93, "AA"),
    "openai": _form("sk-", ALNUM, 48),
    "openai project": _form("sk-proj-", ALNUM + "-_", 100),
    "slack": _form("xoxb-1234567890-1234567890-", ALNUM, 24),
    "slack webhook": _form("https://hooks.slack.com/services/", ALNUM, 44),
    "discord webhook": _form("https://discord.com/api/webhooks/1234567890/", ALNUM, 60),
    "npm": _form("npm_", ALNUM, 36),
    "pypi": _form("pypi-AgEIcHlwaS5vcmc", ALNUM + "-_", 80),
    "google": _form("AIza", ALNUM, 35),
    "databricks": _form("dapi", HEX, 32),
    "vault": _form("hvs.", ALNUM + "-_", 95),
    "digitalocean": _form("dop_v1_", HEX, 64),
    "sendgrid": _form("SG.", ALNUM, 22, ".abcdefghijklmnopqrstuvwxyz"),
    "json web token": _jwt,
    "private key": _pem,
    "login": _form("postgres://ann:", ALNUM + "+!", 20, "@db.internal:5432/runs"),
    # Digits and a slash after them would be a port and a path, whoever reads the address.
    "proxy": _form("http://ann:p", ALNUM + "/", 20, "@proxy:3128"),
    "slash": _form("http://ann:/", ALNUM + "/", 20, "@proxy:3128"),
    "presigned": _form("https://b.s3.amazonaws.com/k?X-Amz-Date=20261123&X-Amz-Signature=", HEX, 64, "&x=1"),
    "session token": _form("https://b.s3.amazonaws.com/k?X-Amz-Security-Token=IQoJ", ALNUM + "%", 80),
    "shared access": _form("https://b.blob.core.windows.net/c/k?sp=r&sig=a", ALNUM + "%", 44),
    "bearer": _form("Authorization: Bearer ", ALNUM, 40),
    "token as user": _form("https://7", HEX, 40, "@dev.azure.com/org/project"),
    "token as user, no password": _form("https://7", HEX, 40, ":@github.com/team/model"),
    "authorization": _form("Authorization: token 7", HEX, 39),
    "connection": _form("AccountName=team;AccountKey=", ALNUM + "+/", 86, "==;EndpointSuffix=core.windows.net"),
}
# More forms: what stands before and behind what is drawn, of which characters, and how many.
FORMS = [
    ("glsa_", ALNUM, 32, "_0123abcd"), ("ATATT3", ALNUM, 186, ""), ("lin_api_", ALNUM, 40, ""),
    ("sntryu_", HEX, 64, ""), ("sntrys_eyJ", ALNUM, 80, "="), ("a1b2c3d4e5f6g7.atlasv1.", ALNUM, 64, ""),
    ("ntn_12345678901", ALNUM, 35, ""), ("pplx-", ALNUM, 48, ""), ("PMAK-" + "0a" * 12 + "-", ALNUM, 34, ""),
    ("rubygems_", HEX, 48, ""), ("xkeysib-", HEX, 64, "-a1B2a1B2a1B2a1B2"), ("shpss_", HEX, 32, ""),
    ("sk_test_", ALNUM, 24, ""), ("hvb.", ALNUM, 140, ""), ("ops_eyJ", ALNUM, 260, ""), ("sgp_", HEX, 40, ""),
    ("dckr_pat_", ALNUM, 27, ""), ("figd_", ALNUM, 40, ""), ("whsec_", ALNUM, 32, ""),
    ("LTAI", ALNUM, 20, ""), ("glptt-", HEX, 40, ""), ("gldt-", ALNUM, 20, ""), ("glcbt-1_", ALNUM, 20, ""),
    ("glagent-", ALNUM, 50, ""), ("xai-", ALNUM, 80, ""), ("rpa_", ALNUM, 40, ""), ("tgp_v1_", ALNUM, 43, ""),
    ("7312345678:AA", ALNUM, 33, ""), ("dop_v1_", HEX, 64, ""),
    ("sk-", ALNUM, 12, "_aB3dE5gH7"), ("sk-", HEX, 32, ""), ("sk-", ALNUM, 22, ""),
    ("https://api.telegram.org/bot7312345678:AA", ALNUM, 33, "/sendMessage"), ("EAAC", ALNUM, 120, ""),
    ("MTAxNTY3ODkwMTIzNDU2Nzg5.GhQkLm.", ALNUM, 38, ""), ("SK", HEX, 32, ""), ("sha256~", ALNUM, 43, ""),
    ("a1b2Q~", ALNUM + "_~.-", 34, ""), ("A3-A1B2C3-", UPPER, 11, "-A1B2C-D3E4F-G5H6J"),
    ("A3-A1B2C3-D4E5F6-", UPPER, 5, "-A1B2C-D3E4F-G5H6J"), ("sc_a1b2c3d4.e5f6.acc_a1b2c3d4e5.", ALNUM, 44, ""),
    ("4b1dK", ALNUM, 37, ""), ("wandb_v1_", ALNUM + "_", 77, ""), ("lsv2_pt_", HEX, 32, "_0123abcdef"),
    ("lsv2_sk_", HEX, 32, "_0123abcdef"), ("sk-lf-", HEX, 8, "-a1b2-a1b2-a1b2-a1b2c3d4e5f6"),
    ("pk-lf-", HEX, 8, "-a1b2-a1b2-a1b2-a1b2c3d4e5f6"), ("pcsk_a1B2c_", ALNUM, 63, ""), ("KGAT_", HEX, 32, ""),
    ("csk-7", string.ascii_lowercase + DIGITS, 47, ""), ("jina_", HEX, 32, "ABcd_12-efGHijklmnop3456wxyz"),
    ("tvly-dev-7", ALNUM, 31, ""), ("tvly-7", ALNUM, 31, ""), ("sk_", HEX, 48, ""), ("EAAAE", ALNUM + "-_", 59, ""),
    ("ATBBa1", ALNUM, 30, ""), ("ATCTT3xFfG", ALNUM + "-_", 170, "=0A1B2C3D"), ("CCIPAT_", ALNUM, 22, "_" + "0a" * 20),
    ("bkua_", string.ascii_lowercase + DIGITS, 40, ""), ("sbp_", HEX, 40, ""), ("sb_secret_7", ALNUM + "-_", 30, ""),
    ("napi_7", string.ascii_lowercase + DIGITS, 63, ""), ("dp.st.", ALNUM, 43, ""), ("dp.st.prod_eu.", ALNUM, 43, ""),
    ("dp.ct.", ALNUM, 43, ""), ("sqp_", HEX, 40, ""), ("squ_", HEX, 40, ""), ("sqa_", HEX, 40, ""),
    ("xoxc-1234567890-", ALNUM, 40, ""), ("xoxd-", ALNUM + "%", 120, ""), ("patA1b2C3d4E5f6G7.", HEX, 64, ""),
]  # fmt: skip
SECRET_NAMES = [
    "AWS_BEARER_TOKEN_BEDROCK", "DB_CONN_STRING", "BLOB_SAS_URL",
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "GITHUB_PAT", "GITHUB_TOKEN", "DATABASE_URL", "REDIS_URL",
    "SQLALCHEMY_DATABASE_URI", "SLACK_WEBHOOK", "SLACK_WEBHOOK_URL", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AWS_ACCESS_KEY_ID", "MLFLOW_TRACKING_PASSWORD", "PGPASSWORD", "DB_PASS", "DB_PWD", "SENTRY_DSN", "NGC_API_KEY",
    "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "OPENAI_API_KEY",
    "COMET_API_KEY", "SSH_PASSPHRASE", "API_KEYS", "CLIENT_SECRET", "MY_SECRETS", "APIKEY", "hub_token", "api_key",
    "apiKey", "X-Api-Key", "secretAccessKey", "password", "trainer.hub_token", "aws_secret_access_key", "auth_token",
    "SERVICE_CREDENTIALS", "signing_key", "use_auth_token", "pw", "DB_PW", "MYPW", "ROOT_PASS", "CREDS", "AUTH_HEADER",
    "OTP", "CARD_PIN", "secret_access", "secret-access", "HF_TOKEN_2", "HF_TOKEN_WRITE", "OPENAI_API_KEY_PROD",
    "API_KEY_2", "API_KEY2", "SECRET_1", "SECRET_KEY_BASE", "VAULT_SECRET_ID", "CI_JOB_JWT", "CI_JOB_JWT_V2",
    "DOCKER_AUTH_CONFIG", "PRIVATE_KEY_PEM", "hub_token_2", "api_key_prod", "OAUTH", "SFTP_PASS",
    "TELEGRAM_BOT_TOKEN", "SLACK_USER_TOKEN", "CI_TRIGGER_TOKEN", "SYSTEM_TOKEN_2", "hubtoken", "token-value",
    "NETRC", "CI_NETRC", "SESSIONID", "SESSION_ID", "JSESSIONID", "PHPSESSID", "sessionId", "TEAMS_HOOK_URL",
    "HOOK_URL", "SLACK_HOOK", "TEAMS_WEBHOOKURL",
]  # fmt: skip
PLAIN_NAMES = [
    "pad_token_id", "pad_token", "bos_token", "eos_token", "forced_bos_token", "mask_token", "unk_token",
    "image_token",
    "special_tokens", "additional_special_tokens", "max_tokens", "tokens", "tokenizer", "tokenizer_name", "key",
    "keys",
    "tokens_column", "num_key_value_heads", "text_key", "label_key", "sort_key", "monkey", "keyboard", "cache_key",
    "TOKENIZERS_PARALLELISM", "HF_TOKEN_PATH", "PASSWORD_FILE", "PWD", "OLDPWD", "author", "compat", "path",
    "tokenize",
    "decoder_start_token_id", "num_passes", "forward_pass", "secretary", "model_url", "base_url", "HF_ENDPOINT",
    "patience", "pin", "pin_memory", "spin", "PINNED", "otp", "HTTP_HEADER",
    "rng_key", "weight_key", "best_config_key", "token_ids", "token_id", "auth_config", "pad_token_2", "PAD_TOKEN_ID",
    "TOKENS_2",
    "dispatch_batches", "keypoints", "key_padding_mask", "per_token", "authors", "nopass", "id",
    "NETRC_FILE", "XDG_SESSION_ID", "TERM_SESSION_ID", "pre_hook", "GIT_HOOK", "forward_hook", "session", "model_id",
]  # fmt: skip
PLAIN_WORDS = [
    "hf://team/cache@v2.1:rw", "hf://datasets/team/cache@refs/pr/1", "s3://team-bucket/some/prefix",
    "http://127.0.0.1:8000/team/cache@main", "http://[::1]:8000/x@y", "ann@example.org",
    "git@github.com:team/repo.git",
    "https://huggingface.co/team/cache?revision=main&library=true", "a/b@sha256:0123456789abcdef",
    "neuronxcc-2.21.18209.0+043b1bf7/MODULE_12345678901234567890+e30acd3a/model.neff",
    "AKIAAAAAAAAAAAAAAAAA is a word in capitals", "MAKIAHMSPACEDOUTWORDS", "sk-learn 1.5", "risk-0123456789",
    "unexpected token: something",
    "HF_TOKEN: expected a token", "curl -fsSL -u $NAME:$PW https://host/x", "curl https://host:8000/ -o x",
    "mysql -u root -p db", "mysql -P 3306 --protocol=tcp",
    "variable CACHEKIT_TRUST_KEY: missing", "key: 0a1b2c3d", "token 5 of 128",
    "the tokens: 1234", "Basic training of a model",
    "tokenizer = AutoTokenizer.from_pretrained('bert')", "eyJust a word", "hf_hub_download(repo_id='team/cache')",
    "--hidden_size=768 --pad_token=<pad>", "XLA_FLAGS=--xla_dump_to=/tmp/x", "export HF_TOKEN=...",
    "set HF_TOKEN, or run `hf auth login`", "DATABASE_URL is not set", "password: ", "sha256:" + "ab" * 32,
    "mailto:ann2026@example.org", "Reviewed-by:ann92@example.org", "To: ann92@example.org", "12:30@host", "host:8080@x",
    "trainer:v2.1-rc1@main", "python:3.11.4@x", "trainer:build2026@sha256:" + "0f" * 32, "npm:left-pad2@latest",
    "model:gpt2xl@v1.2.3", "cpu:x86_64@node1", "layer:attn_1@module.self", "basic configuration_of_the_module_path",
    "best_config_key: abcd1234", "mysqldump -port3306 db", "token = tokens[0]", "auth_token = os.environ['X1']",
    "password = getpass()", "secret = config.vault2", "hub_token = None", "--token TOKEN", "--hub_token <str>",
    "--api-key TEXT  The key", "invalid password: must have 8 characters", "unexpected token: abc123",
    "https://a-user-with-a-long-name@host/x", "bearer of_all_news_in_the_module", "--tokens 4096", "tokens=int8",
    "ssh -p 2222 host", "sshpass -p $PW ssh host", "sshpass -f file", "local:rw,team/cache@v2:r",
    "MyLongModuleName.config.another_long_name_of_a_module_2", "12:30:A", "sk_test_of_it", "SKIP", "dapi_of_a_module",
    "--train_tokens=/data/Llama3/tok1.bin", "--tokens=s3://Bucket/llama3/tok", "--stop_tokens=EndOfTurn1",
    "sk-resnet50_imagenet_pretrained_v2", "sk-randomforestclassifier", "trial:lr1e-3@node7", "cfg:adamw8bit@fp16",
    "weights:adamw8bit@bf16",
    "jinaai/jina_embeddings_v2_base_code_with_a_long_name_2024_11_of_the_team_and_more", "patterns_of_a1b2." + "c" * 64,
    "napi_create_external_arraybuffer_of_the_module_v2_and_more", "csk-" + "abcd" * 12, "EAAAAAAACgAMAAoABgAIAAwA" * 3,
    "4b1d" + "0a" * 18, "4b1d" + "0a" * 19, "4b1d" + "0a" * 30, "ATBB" + "ABCD" * 9, "sk_learn_of_a1b2c3",
    "sort.py --key validation_loss", "sort.py --key Layer12Loss", "read.py runs.zip -P 4", "sqlplus /nolog @runs.sql",
    "push.py --license apache-2.0", "--license LICENSE-2.0.txt", "--license CC-BY-SA-4.0", "--serial 12",
    "--license=/opt/lic/Vendor9.lic", "--license 27000@Licenses1.team.org", "run -p 2222 cosign", "user.py ann using x",
    "sqrt_of_a_b", "A3-LARGE-MODEL", "sb_secret_santa", "tvly-the-name-of-a-model-with-many-words", "mlp.st.weight_0",
    "C:\\x1b\\[m and \\/ and \\u0041", "\x1b[32mepoch\x1b[0m: 3", '{"a": "\\u003ctoken\\u003e"}',
    "machine learning: login failed, password incorrect", "redis-cli -h host ping", "openssl rsa -passin file:pw",
    "inductor-2.13.0/x86_64-avx2-0a1b2c3d/" + "0123456789abcdef" * 4 + ".tar", "c" * 40,
]  # fmt: skip
