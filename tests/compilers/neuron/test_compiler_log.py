"""The log that the compiler writes itself."""

# ruff: noqa: E501 - quoted lines are as long as they are

from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.neuron.log.compiler import read_compiler_log
from tests.support.places import real_dir

LOG = """\
2026-04-23T19:03:57Z INFO 100 [root]: /opt/bin/neuronx-cc compile --framework=XLA m/model.MODULE_1+f7f529f3.hlo_module.pb \
--output m/model.MODULE_1+f7f529f3.neff --target=trn2 '--tensorizer-options=--a --b'
2026-04-23T19:03:57Z INFO 100 [root]: NeuronX Compiler version 2.24.5133.0+58f8de22 Python version 3.12.3 HWM version 2
2026-04-23 19:03:57.522402: I hilo/partition/Partition.cc:83] [INFO] needsModular? No.
2026-04-23T19:03:58Z USER 101 [root/Tensorizer/Tensorizer]: Running Tensorizer
2026-04-23T19:05:00Z INFO 200 [root]: /opt/bin/neuronx-cc compile --framework XLA b.pb --output=b.neff
2026-04-23T19:05:30Z ERROR 201 [neuronxcc.driver.CommandDriver]: [ERROR] [NCC_EOOM002] Maximum peak HBM usage of 18.12GB
  exceeds HBM limit of 16.00GB
2026-04-23T19:05:31Z INFO 200 [root]: Subcommand returned with exitcode=70
2026-04-23T19:06:57Z INFO 100 [root]: Subcommand returned with exitcode=0
2026-04-23T19:07:00Z INFO 300 [root]: /opt/bin/neuronx-cc compile --framework XLA c.pb --output=c.neff
"""


def test_a_compilers_log_tells_each_of_its_compiles():
    good, bad, broken = read_compiler_log(LOG.splitlines(keepends=True))
    assert (good.module, good.version, good.exit_code) == ("MODULE_1+f7f529f3", "2.24.5133.0+58f8de22", 0)
    assert (good.failure, good.errors) == (None, "")
    assert (bad.module, bad.exit_code, bad.codes) == ("", 70, ("NCC_EOOM002",))
    assert bad.failure.kind.name == "device-oom"
    assert "exceeds HBM limit" in bad.errors
    assert (broken.exit_code, broken.failure) == (None, None)
    assert (good.seconds, bad.seconds) == (180.0, 31.0)


def test_a_compile_whose_shell_says_killed_has_failed_for_want_of_memory():
    *_, killed = read_compiler_log([*LOG.splitlines(), "Killed"])
    assert (killed.exit_code, killed.failure.kind.name) == (None, "host-oom")


def test_words_on_a_line_of_their_own_tell_why_a_compile_ended_badly():
    words = ["Traceback (most recent call last):", "OSError: [Errno 28] No space left on device"]
    ended = "2026-04-23T19:08:00Z INFO 300 [root]: Subcommand returned with exitcode=70"
    *_, full = read_compiler_log([*LOG.splitlines(), *words, ended])
    assert (full.exit_code, full.failure.kind.name) == (70, "disk-full")


def test_compiles_at_once_end_for_themselves():
    lines = LOG.splitlines()
    lines[7], lines[8] = lines[8], lines[7]
    first, second, _ = read_compiler_log(lines)
    assert (first.exit_code, second.exit_code) == (0, 70)


def test_an_old_compilers_log():
    text = (
        "02/17/2023 04:18:15 PM INFO 57160 [root]: /opt/neuronx-cc compile --framework XLA a.pb --output a.neff\n"
        "02/17/2023 04:18:45 PM ERROR 57168 [neuronx-cc]:   NeuronX Compiler version 2.4.0.21+b7621be18\n"
        "02/17/2023 04:19:15 PM INFO 57160 [root]: Subcommand returned with exitcode=-9\n"
    )
    (run,) = read_compiler_log(text.splitlines())
    assert (run.version, run.exit_code) == ("2.4.0.21+b7621be18", -9)
    assert run.failure.kind.name == "host-oom"


@given(st.text(max_size=300))
@settings(max_examples=20)
def test_any_text_is_no_compilers_log_or_one(text):
    for part in (text, LOG[: len(text) * 3] + text):
        for run in read_compiler_log(part.splitlines()):
            assert run.exit_code is None or isinstance(run.exit_code, int)


# --- real logs ----------------------------------------------------------------------------------------------------


def test_real_compiler_logs():
    for path in sorted(real_dir("logs").glob("log-neuron-cc*.txt")):
        with path.open(encoding="utf-8", errors="replace") as file:
            runs = read_compiler_log(file)
        assert runs, path
        assert any(run.version for run in runs), path
        for run in runs:
            if "success" in path.name:
                assert (run.exit_code, run.failure) == (0, None)
            if "failure" in path.name:
                assert run.exit_code
                assert run.failure.message
