"""Keys from the files that `aws configure` writes, which obstore does not read.

What needs a service first (a role to assume, single sign-on) is left to boto3 where that is installed.
"""

from __future__ import annotations

import configparser
import os
from pathlib import Path
from typing import Any

from cachekit.disk import check_ends
from cachekit.errors import UsageError

# With any of these obstore knows what to do; the first two go before a profile, as in AWS's own tools.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_NAMES = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


def credentials() -> dict[str, Any]:
    """Settings for obstore that it does not find itself: keys, a region, a provider of both.

    Raises:
        UsageError: The profile that the environment names, or a file, cannot be used.
    """
    profile = os.environ.get("AWS_PROFILE", "")
    if any(os.environ.get(name) for name in (_KEYS if profile else _KEYS + _ROLES)):
        return {}
    keys = _section("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile or "default")
    settings = _section("AWS_CONFIG_FILE", "config", f"profile {profile}" if profile else "default")
    found = settings | keys
    region = {"region": found["region"]} if found.get("region") else {}
    if found.get("aws_access_key_id") and found.get("aws_secret_access_key") and "role_arn" not in found:
        return region | {name: found[ours] for ours, name in _NAMES.items() if found.get(ours)}
    if not profile:
        return region  # the instance's role, then
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider

        return region | {"credential_provider": Boto3CredentialProvider(Session(profile_name=profile))}
    except ImportError:
        raise UsageError(
            f"the AWS profile {profile!r} has no keys in it", hint="pip install boto3, which can assume its role"
        ) from None
    except Exception as error:  # noqa: BLE001 - botocore's many
        raise UsageError(f"the AWS profile {profile!r} cannot be used", cause=type(error).__name__) from None


def _section(variable: str, usual: str, name: str) -> dict[str, str]:
    path = Path(os.environ.get(variable) or Path(os.path.expanduser("~"), ".aws", usual))  # noqa: PTH111
    if not os.environ.get(variable) and not path.is_absolute():
        return {}  # a user without a home directory has no such files
    check_ends(path, variable)
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeError):
        return {}
    return dict(parser.items(name)) if parser.has_section(name) else {}
