"""Neuron's logs: names in them, how they are read, and real ones."""

# ruff: noqa: E501 - quoted lines are as long as they are

import pytest

from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.compilers.neuron.log.summary import Log
from tests.support.places import real_dir

ROOT = "/var/tmp/neuron-compile-cache"
NCC = f"{ROOT}/neuronxcc-2.26.6360.0+6f180f47"


def module(number):
    return f"MODULE_{number}+f7f529f3"


def events_of(text):
    reader = LogReader()
    return reader.feed(text) + reader.close()


def run_of(text):
    return Log().add_all(events_of(text))


def real_log(kind):
    found = sorted(real_dir("logs").glob(kind))
    if not found:
        pytest.skip(f"no {kind} among the real files (CACHEKIT_REAL_DIR)")
    return found[0]


# One run with everything, in the words of libneuronxla 2.2.17.
NEW = f"""\
root: Found libneuronpjrt.so. Setting PJRT_DEVICE=NEURON.
2026-07-29 17:25:16.000037:  10451  [INFO]: run_train_script: executing trial run cmd: ['python', 'train.py']
[2026-07-29 17:25:29.935: I neuronx_distributed/parallel_layers/parallel_state.py:638] > initializing
2026-07-29 17:25:29.000941:  10477  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff
2026-07-29 17:25:29.000943:  10476  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff
neuronxcc-2.26.6360.0+6f180f47/{module(2)}/model.done not found in aws-neuron/optimum-neuron-cache: the corresponding \
graph will be recompiled. This may take up to one hour for large models.
2026-07-29 17:27:22.000687:  10477  [INFO]: Extracting graphs ({NCC}/{module(2)}/model.hlo_module.pb) for ahead-of-time \
parallel compilation. No compilation was done.
2026-07-29 17:27:22.000688:  10476  [INFO]: Extracting graphs ({NCC}/{module(2)}/model.hlo_module.pb) for ahead-of-time \
parallel compilation. No compilation was done.
{{'loss': 1.72, 'learning_rate': 0.0001, 'train/step_time': 277.9}}
2026-07-29 17:28:55.000525:  10451  [INFO]: New graph list from script: {NCC}/{module(2)}/model.hlo_module.pb
\t{NCC}/{module(2)}/model.hlo_module.pb
2026-07-29 17:28:55.000653:  10617  [INFO]: Worker 0/None starting dynamic scheduling for 2 HLOs
...........
Compiler status PASS
2026-07-29 17:32:34.000996:  10617  [INFO]: Compilation Successfully Completed for model.{module(2)}.hlo_module.pb
2026-07-29 17:32:35.000100:  10617  [INFO]: Another process must be compiling {NCC}/{module(3)}/model.hlo_module.pb, \
been waiting for: 22.0 minutes
2026-07-29 17:32:36.000100:  10617  [ERROR]: Got a cached failed neff at {NCC}/{module(4)}/model.neff. Will skip \
compilation, please set --retry_failed_compilation for recompilation:
 Failed compilation with ['neuronx-cc', 'compile', '--framework=XLA', '/tmp/w/model.{module(4)}.hlo_module.pb', \
'--output', '/tmp/w/model.{module(4)}.neff', '--target=trn1', '--verbose=35']: 2026-07-29T01:00:00Z [ERROR] [NCC_EOOM002] \
Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB
2026-07-29 17:33:00.000000:  10617  [INFO]: Got a cached failed neff at {NCC}/{module(5)}/model.neff. With eror log: \
[Failed compilation with ['neuronx-cc', 'compile', '--output', '/tmp/w/model.{module(5)}.neff']: killed]. Retrying...
2026-07-29 17:34:00.000000:  10617  [ERROR]: Failed compilation with ['neuronx-cc', 'compile', '--framework=XLA', \
'/tmp/w/model.{module(6)}.hlo_module.pb', '--output', '/tmp/w/model.{module(6)}.neff']: 2026-07-29T17:33:59Z
[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory.
2026-07-29 17:34:01.000734:  10617  [INFO]: Worker 0 completed: 1 tasks compiled
2026-07-29 17:34:01.000740:  10617  [INFO]: Current remaining items are 0, locked are 1, failed are 3, done are 2, total is 6
2026-07-29 17:34:01.000755:  10451  [INFO]: Compilation summary - Total graphs: 2, Success: 1, Failed: 1
2026-07-29 17:34:01.000755:  10451  [INFO]: Total successful compilations: 1
2026-07-29 17:34:01.000755:  10451  [INFO]: Compilation summary: 1/2 failed, 1 succeeded
"""
