"""Whatever order pushes to a bucket of the Hub take turns in, and whatever fails: nothing of those that end well is lost."""

from functools import partial

import pytest
from msgspec import structs

from cachekit.errors import BusyError, ConflictError, RemoteError, UncertainError
from cachekit.remotes import additions, layout
from cachekit.remotes.document import Shared
from cachekit.remotes.offer import Offer
from cachekit.text import DAY
from tests.remotes.turns import LATE, LOST, NEVER, Fault, world
from tests.support.standins import make_record

pytestmark = pytest.mark.feature("R3")

KEY = make_record()[0].key


def module(number, contents="a", key=1, size=5000):
    """A record of a key with the module of a number; other contents, other bytes at the same path."""
    record, files = make_record(key, artifacts=(f"{contents}{number}",), size=size)
    (file,) = record.modules[0].files
    made = structs.replace(
        record.modules[0], name=f"standin-1.0/MODULE_{number}", files=(structs.replace(file, path="model.code"),)
    )
    return Offer(Shared(structs.replace(record, modules=(made,)), {}), files)


def archive(number):
    """The same with an archive."""
    record, files = make_record(artifacts=(f"x{number}",))
    made = structs.replace(record.modules[0], name=f"standin-1.0/{record.modules[0].files[0].path}")
    return Offer(Shared(structs.replace(record, modules=(made,)), {}), files)


def together(*offers):
    """One record with the modules of several."""
    modules = tuple(module for one in offers for module in one.shared.record.modules)
    record = structs.replace(offers[0].shared.record, modules=modules)
    return Offer(Shared(record, {}), {digest: raw for one in offers for digest, raw in one.sources.items()})


def three(bucket):
    bucket.alone(module(0))
    return [bucket.push(module(number)) for number in (1, 2, 3)]


def three_at_once(bucket):
    three(bucket)
    bucket.run()


def two_records_each(bucket):
    for number in (1, 2, 3):
        bucket.push(module(number), module(number, key=2))
    bucket.run()


def the_same_and_one_more(bucket):
    for _ in range(3):
        bucket.push(together(module(0), module(1)))
    bucket.push(module(2))
    bucket.run()


def one_killed(bucket):
    killed, *_ = three(bucket)
    killed.killed_at = bucket.chance.randrange(14)
    bucket.run()
    if bucket.chance.random() < 0.5:
        bucket.alone(module(1), resumed=True)
    else:
        bucket.alone(module(9))


def one_killed_beside_other_keys(bucket):
    bucket.alone(module(0))
    pushes = [bucket.push(module(number, key=number)) for number in (1, 2, 3)]
    bucket.chance.choice(pushes).killed_at = bucket.chance.randrange(14)
    bucket.run()
    bucket.alone(module(9, key=4))


def several_killed_and_run_again(bucket):
    killed = three(bucket)
    for one in killed:
        one.killed_at = bucket.chance.randrange(4, 16)
    bucket.push(module(4))
    bucket.run()
    again = [bucket.push(*one.offers, resumed=True) for one in killed if one.error]
    for one in again[:1]:
        one.killed_at = bucket.chance.randrange(3, 30)
    bucket.run()
    for one in again[:1]:
        bucket.alone(*one.offers, resumed=True)


def each_with_a_fault(bucket):
    faults = [None, LOST, NEVER, Fault(BusyError), Fault(ConflictError)]
    faults += [Fault(RemoteError, part) for part in ("MODULE", layout.INDEX, layout.CARD, "/records/", layout.NEW, "")]
    faults += [Fault(UncertainError, part) for part in (layout.INDEX, "/records/", layout.NEW)]
    for push in three(bucket):
        push.fault = bucket.chance.choice(faults)
    bucket.run()


def one_that_lands_late(bucket):
    three(bucket)[0].fault = LATE
    bucket.run()
    bucket.alone(module(9))


def two_builds(bucket, joins, size):
    bucket.alone(module(0))
    bucket.push(module(1, "a"), joins=joins)
    bucket.push(together(module(1, "b", size=size), module(2)), joins=joins)
    bucket.run()


def a_file_that_is_gone(bucket, *, recheck):
    bucket.alone(together(module(0), module(1)))
    bucket.remove("MODULE_1/")
    bucket.push(module(2), recheck=recheck)
    bucket.push(together(module(1), module(5)))
    bucket.run()


def archives(bucket, count):
    made = [archive(number) for number in range(count)]
    for some in (made, made[:2], made[:1]):
        bucket.push(together(*some))
    bucket.run()


def one_that_replaces(bucket):
    three(bucket)[0].offers = (structs.replace(module(1), replaces=True),)
    bucket.pushes[1].killed_at = bucket.chance.choice([-1, *range(4, 14)])
    bucket.run()
    bucket.alone(module(1), resumed=True)
    return {(KEY, "standin-1.0/MODULE_1")}


def cleared(bucket):
    bucket.patch.setattr(additions, "_OLD", 1)
    three(bucket)[0].killed_at = bucket.chance.randrange(4, 14)
    bucket.run()
    bucket.now += additions.KEPT + 1
    for number in (4, 5):
        bucket.push(module(number, key=bucket.chance.choice([1, 2])))
    bucket.run()
    bucket.now += bucket.chance.choice([additions.KEPT + 1, DAY + 1])
    for key in (2, 3):
        bucket.push(module(6, key=key))
    bucket.run()
    bucket.now += additions.KEPT + 1
    bucket.alone(module(7))


SCENARIOS = {
    **{one.__name__: one for one in (three_at_once, two_records_each, the_same_and_one_more)},
    **{one.__name__: one for one in (one_killed, one_killed_beside_other_keys, several_killed_and_run_again)},
    **{one.__name__: one for one in (each_with_a_fault, one_that_lands_late, one_that_replaces, cleared)},
    "two_builds": partial(two_builds, joins=1 << 20, size=6000),
    "two_builds_sent_ahead": partial(two_builds, joins=0, size=5000),
    "two_builds_of_two_sizes_sent_ahead": partial(two_builds, joins=0, size=6000),
    "a_file_that_is_gone": partial(a_file_that_is_gone, recheck=False),
    "a_recheck": partial(a_file_that_is_gone, recheck=True),
    "few_archives": partial(archives, count=3),
    "many_archives": partial(archives, count=20),
}
CAMPAIGN = pytest.param(range(12, 400), marks=[pytest.mark.campaign, pytest.mark.slow])


@pytest.mark.parametrize("seeds", [range(12), CAMPAIGN], ids=["some", "many"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_of_a_push_that_ended_well_is_lost(scenario, seeds):
    failed, logs = {}, []
    for seed in seeds:
        with world(seed) as bucket:
            wanted = SCENARIOS[scenario](bucket) or bucket.pushed()
            if trouble := bucket.trouble(wanted):
                failed[seed] = trouble
                logs = logs or bucket.log
    assert not failed, "\n".join(logs)


def test_a_record_that_the_index_named_already_is_written_with_the_index():
    """Others write both meanwhile."""
    with world(0) as bucket:
        same, other = (together(*map(module, numbers)) for numbers in ((1, 2), (2, 1)))
        slow = bucket.until(bucket.push(same), layout.INDEX)
        slower = bucket.until(bucket.push(other), layout.INDEX)
        bucket.alone(same)
        bucket.until(slow, "batch")
        bucket.until(slower, "its end")
        bucket.until(slow, "its end")
        assert not bucket.trouble(bucket.pushed()), bucket.log
