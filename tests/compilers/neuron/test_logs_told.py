"""Whole logs of Neuron runs, as `why --log` tells them: figures, failures and what they lost."""

# ruff: noqa: E501 - quoted lines are as long as they are

import io
import json

import pytest

from cachekit.compilers.neuron.failures import classify
from cachekit.compilers.neuron.log.summary import read
from tests.compilers.neuron.neuron_log_texts import NCC, NEW, module, real_log
from tests.compilers.neuron.test_failures import CASES, COMMAND


def told(text):
    return read(io.BytesIO(text.encode()))


@pytest.mark.feature("D2")
def test_a_log_is_told_as_a_whole():
    found = told(NEW)
    assert (found.of, found.compilers) == ("run", ("neuronxcc-2.26.6360.0+6f180f47",))
    assert (found.found, found.extracted) == (1, 0)
    assert [(one.module, one.seconds, one.at_most) for one in found.compiled] == [(module(2), 219.343, False)]
    assert {one.module: (one.kind, one.earlier) for one in found.failed} == {
        module(4): ("device-oom", True),
        module(6): ("host-oom", False),
    }
    assert found.waits == {module(3): 22 * 60}
    # The wait holds the compile, which went on at the same time; the failed one was told of a minute after a line.
    assert found.lost_seconds == 22 * 60 + 60
    assert [(one.seconds, one.at_most) for one in found.failed] == [(None, False), (60.0, False)]


def test_a_failed_compile_has_its_seconds():
    call = "['neuronx-cc', 'compile', '/tmp/w/model.{0}.hlo_module.pb', '--output', '/tmp/w/model.{0}.neff']"
    begun = f"2026-07-29 17:00:00.000000:  7  [INFO]: Call compiler with cmd: {call.format(module(1))}\n"
    failed = (
        f"2026-07-29 17:22:03.000000:  7  [ERROR]: Failed compilation with {call.format(module(1))}: [NCC_EOOM002] no\n"
    )
    (one,) = told(begun + failed).failed
    assert (one.seconds, one.at_most, one.code) == (22 * 60 + 3, False, "NCC_EOOM002")
    assert told(begun + failed).lost_seconds == 22 * 60 + 3
    (untimed,) = told(failed).failed
    assert untimed.seconds is None
    gave_up = (
        f"2026-07-29 17:22:04.000000:  7  [ERROR]: Compilation failed for /w/model.{module(1)}.neff after 0 retries."
    )
    (one,) = told(begun + failed + gave_up).failed
    assert (one.seconds, one.at_most) == (22 * 60 + 3, False), "a second line about the same failure adds nothing"


def test_ranks_that_report_one_failure_lost_its_time_once():
    line = f"Failed compilation with ['neuronx-cc', 'model.{module(1)}.hlo_module.pb']: [NCC_EOOM002] no"
    text = "".join(f"2026-07-29 17:00:00.000000:  {pid}  [INFO]: Call compiler with cmd: x\n" for pid in range(4))
    text += "".join(f"2026-07-29 17:22:00.000000:  {pid}  [ERROR]: {line}\n" for pid in range(4))
    (one,) = told(text).failed
    assert (one.seconds, told(text).lost_seconds) == (22 * 60, 22 * 60)


def test_what_only_npcs_report_says_is_lost_too():
    done = f"2025-01-17 01:16:00.000000:  1  [INFO]: Call compiler with cmd: neuronx-cc model.{module(1)}.neff\n"
    done += f"2025-01-17 01:17:40.000000:  1  [INFO]: Compilation Successfully Completed for model.{module(1)}.neff\n"
    report = {
        f"{NCC}/{module(number)}/model.hlo_module.pb": {"status": ended, "retry": 0, "compile_time": took}
        for number, ended, took in ((1, True, 90.0), (2, False, 30.5))
    }
    found = told(done + f"2025-01-17 01:17:50.000000:  2  [INFO]: {json.dumps(report)}\n")
    assert [(one.module, one.seconds) for one in found.failed] == [(module(2), 30.5)]
    # The one that its own lines tell, and the other, which may have failed at the same time.
    assert (found.lost_seconds, found.lost_at_most) == (130.5, True)


KILLED = [("[F137] neuronx-cc was forcibly killed", "host-oom")]


def test_a_compile_that_is_said_to_be_killed_has_failed():
    """Where nobody else tells it: neither `F137` nor a shell names a module, and it is the one that was compiled."""
    for said in [
        "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient memory.",
        "2026-07-31T05:09:00Z [F137] neuronx-cc was forcibly killed",
        "[F137] killed",
        "Killed",
    ]:
        for after in ["", "subprocess.CalledProcessError: Command 'neuronx-cc' returned exit status 1.\n"]:
            call = f"Call compiler with cmd: neuronx-cc compile /tmp/w/model.{module(5)}.hlo_module.pb --target=trn1"
            begun = f"2026-07-31 05:08:00.000100:  5  [INFO]: {call}\n"
            killed = f"...\n{said}\n"
            (failed,) = told(begun + killed + after).failed
            assert (failed.module, failed.kind) == (module(5), "host-oom")
            done = f"2026-07-31 05:09:30.000100:  5  [INFO]: Compilation Successfully Completed for model.{module(5)}.neff\n"
            assert told(begun + killed + done).failed == ()


@pytest.mark.parametrize(
    "code, kind", [("[NCC_EOOM002] Maximum peak HBM usage of 18.12GB exceeds HBM limit", "device-oom"), *KILLED]
)
@pytest.mark.parametrize(
    "after, seconds",
    [
        (f"2026-07-31 05:30:00.000100:  5  [ERROR]: Compilation failed for /tmp/w/model.{module(5)}.pb after 0 retries.", 1320),
        ("RuntimeError: Bad StatusOr access: INTERNAL: RunNeuronCCImpl: error condition", None),
    ],
)  # fmt: skip
def test_what_the_compiler_says_before_the_failure_is_told_is_its_cause(code, kind, after, seconds):
    """The compiler's own lines come before its parent's, which names the module."""
    call = f"Call compiler with cmd: neuronx-cc compile /tmp/w/model.{module(5)}.hlo_module.pb --target=trn1"
    begun = f"2026-07-31 05:08:00.000100:  5  [INFO]: {call}\n"
    (failed,) = told(f"{begun}2026-07-31T05:29:59Z [ERROR] {code}\n{after}\n").failed
    assert (failed.module, failed.kind, failed.seconds) == (module(5), kind, seconds)
    done = f"2026-07-31 05:31:30.000100:  5  [INFO]: Compilation Successfully Completed for model.{module(5)}.neff\n"
    again = f"2026-07-31 05:31:40.000100:  5  [INFO]: {call}\n"
    other = "2026-07-31 05:32:00.000100:  5  [ERROR]: Compilation failed for "
    (failed,) = told(
        f"{begun}[ERROR] {code}\n{done}{again}{other}/tmp/w/model.{module(5)}.pb after 0 retries.\n"
    ).failed
    assert failed.kind == "unknown", "what was said of a compile that ended well says nothing of the next one"


def test_a_code_alone_is_read_as_the_failure_that_it_is():
    """What somebody has cut out of a log, and no other program's code."""
    (failed,) = told(
        "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient memory."
    ).failed
    assert (failed.module, failed.kind, failed.code) == ("", "host-oom", "F137")
    assert read(io.BytesIO(b"[WEB500] Internal Server Error\n")) is None


def test_a_compile_that_failed_before_is_told_with_its_failure():
    call = f"['neuronx-cc', '--output', '/tmp/w/model.{module(1)}.neff']: [F137] neuronx-cc was forcibly killed"
    failed = f"2026-07-31 05:08:00.000100:  5  [ERROR]: Failed compilation with {call}\n"
    old = f"2026-07-31 05:08:00.000100:  5  [INFO]: Got a cached failed neff at {NCC}/{module(1)}/model.neff. "
    old += f"With eror log: \n Failed compilation with {call}. Retrying...\n"
    done = f"2026-07-31 05:09:00.000100:  5  [INFO]: Compilation Successfully Completed for model.{module(1)}.neff\n"
    assert [one.failed_before for one in told(failed + done).compiled] == ["host-oom"]
    assert [one.failed_before for one in told(old + done).compiled] == ["host-oom"]
    assert [one.failed_before for one in told(done).compiled] == [""]


def test_a_wait_from_before_the_calendar_loses_no_time():
    for day in ["2026-07-29", "0001-01-01"]:
        for minutes in ["9999999999.0", "1" + "0" * 307, "9" * 400]:
            line = f"{day} 00:00:00.000000:  1  [INFO]: Another process must be compiling {NCC}/{module(9)}/model.hlo_module.pb, "
            found = told(line + f"been waiting for: {minutes} minutes\n")
            assert (list(found.waits), found.lost_seconds) == ([module(9)], None)


def test_a_compile_without_an_end_is_told():
    begun = "2026-07-29 17:30:00.000000:  7  [INFO]: Call compiler with cmd: neuronx-cc compile "
    begun += f"/tmp/w/model.{module(3)}.hlo_module.pb\n....."
    next_one = (
        f"neuronxcc-2.26/{module(4)}/model.done not found in org/cache: the corresponding graph will be recompiled.\n"
    )
    retried = (
        f"2026-07-29 17:33:00.000000:  8  [INFO]: Got a cached failed neff at {NCC}/{module(5)}/model.neff. Retrying\n"
    )
    assert [told(text).unfinished for text in (begun, next_one, retried, begun + "\n" + next_one)] == [1, 1, 1, 2]
    ended = f"\n2026-07-29 17:31:00.000000:  7  [INFO]: Compilation Successfully Completed for model.{module(3)}.neff\n"
    found = f"2026-07-29 17:31:00.000000:  7  [INFO]: Using a cached neff at {NCC}/{module(4)}/model.neff\n"
    assert told(begun + ended + next_one + found).unfinished == 0


def test_runs_that_one_log_holds_are_counted():
    line = f"2026-07-31 05:{{}}:00.000100:  {{}}  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff\n"
    one = line.format("08", 5) + line.format("08", 6) + line.format("09", 5) + line.format("09", 6)
    later = line.format(10, 7) + line.format(10, 8)
    assert [told(text).groups for text in (one, one + later, later + one, one + line.format(10, 5))] == [1, 2, 2, 1]


def test_extracted_graphs_wait_for_a_compile_unless_npc_has_been_there():
    graph = f"2026-07-29 17:27:22.000687:  1  [INFO]: Extracting graphs ({NCC}/{module(2)}/model.hlo_module.pb) for ahead-of-time parallel compilation.\n"
    assert (told(graph).extracted, told(graph).found) == (1, 0)
    done = told(graph + "2026-07-29 17:28:01.000755:  1  [INFO]: Total graphs: 1\n")
    assert (done.extracted, done.found) == (0, 1)


def test_what_nxd_says_of_all_graphs_is_the_time_where_lines_have_none():
    """It compiles one graph first, which is not among all: a public log of NxD Inference has these two figures."""
    first = "INFO:Neuron:Done compilation for the priority HLO in 45.15 seconds\n"
    others = "(EngineCore_DP0 pid=272) INFO:Neuron:Finished Compilation for all HLOs in 49.70 seconds\n"
    assert [told(text).lost_seconds for text in (first, others, first + others)] == [45.15, 49.7, 94.85]


PASS = "....\nCompiler status PASS\n"


def test_the_export_of_a_model_is_told_by_its_parts():
    """As optimum-neuron writes it, whose export keeps its graphs elsewhere than in the compiler's cache."""
    part = f"***** Compiling {{}} *****\n{PASS}[Compilation Time] {{}} seconds.\n"
    text = part.format("encoder", 101.86) + part.format("decoder", 55.2) + "[Total compilation Time] 157.06 seconds.\n"
    found = told(f"{text}Model cached in: {NCC}/MODULE_6151d82caf2d3b2f7a6f.\n")
    assert [(one.module, one.seconds, one.at_most) for one in found.compiled] == [
        ("encoder", 101.86, True),
        ("decoder", 55.2, True),
    ]
    assert (found.of, found.lost_seconds, found.lost_at_most) == ("export", pytest.approx(157.06), True)


def test_a_compile_that_ends_well_counts_whether_or_not_its_graph_is_named():
    for text, compiled, unfinished in [
        (PASS, [""], 0),
        (f"{PASS}hello\n{PASS}", ["", ""], 0),
        ("{one}{two}" + PASS, [""], 1),
        ("{one}" + PASS, [module(1)], 0),
        ("{one}" + PASS + "{ended}", [module(1)], 0),
        ("{one}{ended}{two}", [module(1)], 1),
    ]:
        lines = {"one": calls(0, 5, 1), "two": calls(1, 6, 2), "ended": ends(2, 5, 1)}
        found = told(text.format(**{name: f"{line}\n" for name, line in lines.items()}))
        assert ([one.module for one in found.compiled], found.unfinished) == (compiled, unfinished)


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n", '{"loss": 1.2}\n', "\x00\xff" * 100])
def test_a_log_without_a_word_of_neurons_tells_nothing(text):
    assert told(text) is None


@pytest.mark.parametrize(
    ("kind", "counts", "lost"),
    [
        ("neurontrainer.tinyllama*.log", ("run", 8, 4, 0), 271),  # its own figure: 273.42 s
        ("neuron_parallel_compile.llama31*.log", ("run", 6, 6, 0), 1269),  # of 1,498 s in all
        ("log-neuron-cc.trn1*failure*.txt", ("compiler", 0, 0, 1), 1),
        ("log-neuron-cc.trn3*success*.txt", ("compiler", 0, 1, 0), 1),
    ],
)
def test_real_logs_are_told_as_a_whole(kind, counts, lost):
    with real_log(kind).open("rb") as log:
        said = read(log)
    assert (said.of, said.found, len(said.compiled), len(said.failed)) == counts
    assert said.lost_seconds == pytest.approx(lost, abs=1)


# What the compiler says of a failure on a line of its own, which names no module

OOM = "[NCC_EOOM002] Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB"
F137 = "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory."


def at(minute, pid, text):
    return f"2026-07-31 05:{minute:02}:00.000100:  {pid}  [INFO]: {text}"


def calls(minute, pid, number):
    return at(minute, pid, f"Call compiler with cmd: neuronx-cc compile /tmp/w/model.{module(number)}.hlo_module.pb")


def fails(minute, pid, number):
    return at(minute, pid, f"Compilation failed for /tmp/w/model.{module(number)}.hlo_module.pb after 0 retries.")


def ends(minute, pid, number):
    return at(minute, pid, f"Compilation Successfully Completed for model.{module(number)}.hlo_module.pb")


def twice(minute, pid, number, said=""):
    """A failure as SDK 2.31 tells it at its default level, without a line before the compile."""
    quoted = f"Failed compilation with ['neuronx-cc', 'compile', '/tmp/w/model.{module(number)}.hlo_module.pb']: {said}"
    return f"{at(minute, pid, quoted)}\n{fails(minute, pid, number)}"


TWO_AT_ONCE = [calls(0, 5, 1), calls(0, 6, 2)]
RANKS = [f"[rank0]: {TWO_AT_ONCE[0]}", f"[rank1]: {TWO_AT_ONCE[1]}"]
OF_NOBODY = {
    "no line before the compile": ([OOM, twice(1, 5, 1)], {1: "device-oom"}),
    "the same, of two processes": ([F137, F137, twice(1, 5, 1), twice(1, 6, 2)], {1: "host-oom", 2: "host-oom"}),
    "after each failure its own": ([OOM, twice(1, 5, 1), F137, twice(2, 5, 2)], {1: "device-oom", 2: "host-oom"}),
    "a failure that says why itself": (
        [OOM, twice(1, 5, 1, "[NCC_EVRF059] x"), twice(2, 6, 2)],
        {1: "user-error", 2: "device-oom"},
    ),
    "one that was told of twice": ([OOM, twice(1, 5, 1, OOM), OOM, fails(2, 5, 1)], {1: "device-oom"}),
    "two ranks, each with its own": (
        [*RANKS, f"[rank1]: {OOM}", f"[rank0]: {F137}", f"[rank0]: {fails(1, 5, 1)}", f"[rank1]: {fails(2, 6, 2)}"],
        {1: "host-oom", 2: "device-oom"},
    ),
    "after another rank's failure": (
        [*RANKS, f"[rank0]: {F137}", f"[rank0]: {fails(1, 5, 1)}", f"[rank1]: {OOM}", f"[rank1]: {fails(2, 6, 2)}"],
        {1: "host-oom", 2: "device-oom"},
    ),
    "two at once, of which one fails": ([*TWO_AT_ONCE, OOM, fails(1, 5, 1), ends(2, 6, 2)], {1: "device-oom"}),
    "and the other ends first": ([*TWO_AT_ONCE, OOM, ends(1, 6, 2), fails(2, 5, 1)], {1: "device-oom"}),
    "and another error is the other's": ([*TWO_AT_ONCE, OOM, F137, fails(1, 5, 1), ends(2, 6, 2)], {1: "device-oom"}),
    "two at once, and nothing tells whose is which": (
        [*TWO_AT_ONCE, OOM, F137, fails(1, 5, 1), fails(2, 6, 2)],
        {1: "unknown", 2: "unknown", 0: "device-oom, host-oom"},
    ),
    "a process that goes on to the next": (
        [calls(0, 5, 1), F137, calls(1, 5, 2), OOM, "RuntimeError: Bad StatusOr access: RunNeuronCCImpl"],
        {1: "host-oom", 2: "device-oom"},
    ),
    "the only failure, which another process tells": ([f"[rank3]: {OOM}", f"[rank0]: {fails(1, 5, 1)}"], {1: "device-oom"}),
    "the only failure, which only npc's report tells": (
        [PASS, OOM, f'{{"{NCC}/{module(2)}/model.neff": {{"status": true}}, "{NCC}/{module(1)}/model.neff": {{"status": false}}}}'],
        {1: "device-oom"},
    ),
    "after a hit, in a log that ends": ([HIT := at(0, 5, f"Using a cached neff at {NCC}/{module(9)}/model.neff"), OOM], {0: "device-oom"}),
    "a compile that was tried again": ([calls(0, 5, 1), F137, calls(1, 5, 1), ends(2, 5, 1)], {}),
    "the same without a line before it": ([f"[rank0]: {F137}", f"[rank0]: {ends(2, 5, 1)}"], {}),
    "a warning": ([calls(0, 5, 1), f"2026-07-31T05:03:59Z [WARNING] {OOM}", fails(1, 5, 1)], {1: "unknown"}),
    # Words without a code
    "an option that is refused": ([calls(0, 5, 1), "neuronx-cc compile: error: argument --target: invalid choice: 'trn9'", fails(1, 5, 1)], {1: "user-error"}),
    "the compiler's words alone": (["usage: neuronx-cc compile [-h]", "neuronx-cc: error: unrecognized arguments: --foo"], {0: "user-error"}),
    "no compiler": ([HIT, "ModuleNotFoundError: No module named 'neuronxcc'"], {0: "no-compiler"}),
    "a full disk": ([calls(0, 5, 1), "OSError: [Errno 28] No space left on device", fails(1, 5, 1)], {1: "disk-full"}),
    "a full disk, told later": ([calls(0, 5, 1), fails(1, 5, 1), "OSError: [Errno 28] No space left on device"], {1: "disk-full"}),
    "a full disk that is nobody's": ([HIT, "OSError: [Errno 28] No space left on device"], {}),
    "an interruption after a failure": ([fails(1, 5, 1), "KeyboardInterrupt"], {1: "unknown"}),
    "what torchrun says of another worker": ([fails(1, 5, 1), "  traceback : Signal 9 (SIGKILL) received by PID 78"], {1: "unknown"}),
}  # fmt: skip


@pytest.mark.feature("D2")
def test_an_error_of_nobody_belongs_to_a_failure_or_is_named_alone():
    for case, (lines, expected) in OF_NOBODY.items():
        found = told("\n".join(lines))
        kinds = {}
        for one in found.failed:
            number = int(one.module.removeprefix("MODULE_").partition("+")[0] or 0)
            kinds[number] = ", ".join(sorted(filter(None, (kinds.get(number), one.kind))))
        assert kinds == expected, case


SAID = [
    (line, name)
    for text, _, name, _ in CASES
    for line in text.removeprefix(COMMAND).splitlines()
    if classify(line).kind.name == name and "exitcode" not in line
    if name not in {"interrupted", "unknown"} and (classify(line).certain or line == "Killed")
]


def test_what_tells_a_failures_class_tells_it_on_a_line_before_it_too():
    for line, name in SAID:
        (failed,) = told(f"{calls(0, 5, 1)}\n{line}\n{fails(1, 5, 1)}\n").failed
        assert (failed.module, failed.kind) == (module(1), name)
