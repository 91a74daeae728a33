"""The request on the page of SageMaker, against AWS's own description of the service, as botocore has it.

botocore itself looks at types, names and minima only; the other limits stand in its description.
"""

import re
from pathlib import Path

import pytest

boto3 = pytest.importorskip("boto3")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "sagemaker.md"


class CapturedError(Exception):
    """The request, in place of an answer."""


def sent(code):
    """What the page's code sends: no byte leaves this process."""

    def stop(request, **_):
        raise CapturedError(request.body)

    def client(*names, **options):
        made = boto3.Session("a", "b").client(*names, **options)
        made.meta.events.register("before-send.sagemaker.CreateTrainingJob", stop)
        return made

    scope = {}
    with pytest.raises(CapturedError):
        exec(code.replace("boto3.client", "client").replace("import boto3", ""), scope | {"client": client}, scope)
    return scope["request"]


def beyond(shape, value, where="request"):
    """What a value breaks of the limits that a service's description has."""
    limits, kind = shape.metadata, shape.type_name
    if kind == "structure":
        return [one for name, inner in value.items() for one in beyond(shape.members[name], inner, f"{where}.{name}")]
    size = value if kind in {"integer", "long", "float"} else len(value) if kind in {"string", "list", "map"} else None
    found = []
    if size is not None and not limits.get("min", 0) <= size <= limits.get("max", size):
        found.append(f"{where}: {size}")
    if kind == "string" and "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        found.append(f"{where}: {value!r} is not {limits['pattern']}")
    if kind == "string" and shape.enum and value not in shape.enum:
        found.append(f"{where}: {value!r} is unknown")
    if kind == "list":
        found += [
            one for number, inner in enumerate(value) for one in beyond(shape.member, inner, f"{where}[{number}]")
        ]
    if kind == "map":
        for name, inner in value.items():
            found += beyond(shape.key, name, f"{where} key") + beyond(shape.value, inner, f"{where}.{name}")
    return found


@pytest.fixture(scope="module")
def described():
    import botocore.session

    model = botocore.session.Session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape


@pytest.fixture(scope="module")
def request_of_the_page():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return sent(code)


def test_the_request_keeps_every_limit_of_the_service(described, request_of_the_page):
    assert beyond(described, request_of_the_page) == []
    stops = request_of_the_page["StoppingCondition"]
    assert stops["MaxWaitTimeInSeconds"] >= stops["MaxRuntimeInSeconds"], "what Spot asks for, and no description says"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"TrainingJobName": "warm_bert"}, "TrainingJobName"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "MaxRuntimeInSeconds"),
        ({"Environment": {"A-B": "1"}}, "Environment key"),
        ({"Environment": {"A": "x" * 513}}, "Environment.A"),
        ({"ResourceConfig": {"InstanceType": "ml.trn9.big", "InstanceCount": 1, "VolumeSizeInGB": 1}}, "InstanceType"),
    ],
)
def test_a_request_that_breaks_a_limit_is_found(described, request_of_the_page, changes, what):
    (found,) = beyond(described, request_of_the_page | changes)
    assert what in found


def test_its_command_is_one_that_cachekit_has(request_of_the_page):
    from tests.support import command_words

    said = request_of_the_page["AlgorithmSpecification"]
    assert command_words.problem(" ".join(said["ContainerEntrypoint"] + said["ContainerArguments"])) == ""
