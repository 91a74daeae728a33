"""What the files of `aws configure` say, which obstore does not read.

What needs a service first (a role to assume, single sign-on) is left to boto3 where that is installed.
"""

from __future__ import annotations

import configparser
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachekit.disk import check_ends
from cachekit.errors import UsageError

# With any of these obstore knows what to do; the first two go before a profile, as in AWS's own tools.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")
_CONTAINER = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_ROLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", *_CONTAINER)
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


def settings() -> dict[str, Any]:
    """Settings of a profile, or of the default one: keys, a region, a provider of both.

    Raises:
        UsageError: The profile that the environment names, or a file, cannot be used.
    """
    profile = os.environ.get("AWS_PROFILE", "")
    if any(os.environ.get(name) for name in (_KEYS if profile else _KEYS + _ROLES)):
        return {}
    parser = configparser.RawConfigParser()
    for variable, usual in _FILES.items():
        path = Path(os.environ.get(variable) or os.path.expanduser(usual))  # noqa: PTH111
        if path.parts[:1] != ("~",):  # a user without a home directory has no such files
            check_ends(path, variable)
            with suppress(configparser.Error, OSError, UnicodeError):
                parser.read(path, encoding="utf-8")
    found: dict[str, str] = {}
    for section in filter(parser.has_section, (f"profile {profile}", profile or "default")):
        found |= parser.items(section)
    usable = found.get("aws_access_key_id") and found.get("aws_secret_access_key") and "role_arn" not in found
    wanted = ("region", *(("aws_access_key_id", "aws_secret_access_key", "aws_session_token") if usable else ()))
    known: dict[str, Any] = {name.removeprefix("aws_"): found[name] for name in wanted if found.get(name)}
    if usable or not profile:  # without keys, the instance's role
        return known
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider

        return {**known, "credential_provider": Boto3CredentialProvider(Session(profile_name=profile))}
    except ImportError:
        hint = "pip install boto3, which can assume its role"
        raise UsageError(f"the AWS profile {profile!r} has no keys in it", hint=hint) from None
    except Exception as error:  # noqa: BLE001 - botocore's many
        raise UsageError(f"the AWS profile {profile!r} cannot be used", cause=type(error).__name__) from None
