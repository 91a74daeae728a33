"""Pushes to a bucket of the Hub in whatever order they take turns: nothing of those that end well is lost."""

from functools import partial

import pytest
from msgspec import structs

from cachekit.errors import BusyError, ConflictError, RemoteError, UncertainError
from cachekit.remotes import document, layout, listed_additions, publish
from cachekit.remotes.document import Shared
from cachekit.remotes.offer import Offer
from cachekit.store.record import COMMAND
from cachekit.text import DAY
from tests.remotes.bucket_client import LATE, LOST, NEVER, Fault
from tests.remotes.turns import world
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


def rows_by_themselves(bucket):
    """After some lost races records go without the index."""
    bucket.patch.setattr(publish, "TRIES", 0)
    for number in (1, 2, 3):
        bucket.push(module(number, key=number))
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


def one_without_its_additions(bucket):
    """Of the operations of one batch, a Hub may refuse some: then a slower push would write over the record."""
    three(bucket)[0].fault = Fault(bucket.chance.choice([RemoteError, UncertainError]), layout.NEW)
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


def two_builds_under_two_keys(bucket, joins, size):
    bucket.alone(module(0))
    for key, contents in ((1, "a"), (2, "b")):
        bucket.push(module(1, contents, key, size if key == 2 else 5000), joins=joins)
    bucket.run()
    bucket.alone(module(2))
    bucket.alone(module(2, key=2))


def two_builds_and_a_third_push(bucket):
    bucket.alone(module(0))
    for contents in "ab":
        bucket.push(module(1, contents), joins=0)
    bucket.push(module(2))
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


def archives_of_a_command(bucket):
    """One for each of its settings, which members compile at once; one of them in a run that failed."""
    for number in range(4):
        made = archive(number)
        soft = {"command.finished": number != 1}
        record = structs.replace(made.shared.record, model_type=COMMAND, soft=soft)
        bucket.push(Offer(Shared(record, {}), made.sources))
    bucket.run()
    (there,) = bucket.records()
    assert there.record.soft["command.finished"]


def one_that_replaces(bucket):
    three(bucket)[0].offers = (structs.replace(module(1), replaces=True),)
    bucket.pushes[1].killed_at = bucket.chance.choice([-1, *range(4, 14)])
    bucket.run()
    bucket.alone(module(1), resumed=True)
    return {(KEY, "standin-1.0/MODULE_1")}


def cleared(bucket):
    bucket.patch.setattr(listed_additions, "_OLD", 1)
    three(bucket)[0].killed_at = bucket.chance.randrange(4, 14)
    bucket.run()
    bucket.now += listed_additions.KEPT + 1
    for number in (4, 5):
        bucket.push(module(number, key=bucket.chance.choice([1, 2])))
    bucket.run()
    bucket.now += bucket.chance.choice([listed_additions.KEPT + 1, DAY + 1])
    for key in (2, 3):
        bucket.push(module(6, key=key))
    bucket.run()
    bucket.now += listed_additions.KEPT + 1
    bucket.alone(module(7))


SCENARIOS = {
    **{one.__name__: one for one in (three_at_once, two_records_each, the_same_and_one_more, rows_by_themselves)},
    **{one.__name__: one for one in (one_killed, one_killed_beside_other_keys, several_killed_and_run_again)},
    **{one.__name__: one for one in (each_with_a_fault, one_without_its_additions, one_that_lands_late)},
    **{one.__name__: one for one in (one_that_replaces, cleared)},
    "two_builds": partial(two_builds, joins=1 << 20, size=6000),
    "two_builds_sent_ahead": partial(two_builds, joins=0, size=5000),
    "two_builds_of_two_sizes_sent_ahead": partial(two_builds, joins=0, size=6000),
    "two_builds_under_two_keys": partial(two_builds_under_two_keys, joins=1 << 20, size=5000),
    "two_builds_of_two_sizes_under_two_keys": partial(two_builds_under_two_keys, joins=1 << 20, size=6000),
    "two_builds_under_two_keys_sent_ahead": partial(two_builds_under_two_keys, joins=0, size=6000),
    "two_builds_and_a_third_push": two_builds_and_a_third_push,
    "a_file_that_is_gone": partial(a_file_that_is_gone, recheck=False),
    "a_recheck": partial(a_file_that_is_gone, recheck=True),
    "few_archives": partial(archives, count=3),
    "many_archives": partial(archives, count=20),
    "archives_of_a_command": archives_of_a_command,
}
CAMPAIGN = pytest.param(range(6, 400), marks=[pytest.mark.campaign, pytest.mark.slow])


@pytest.mark.parametrize("seeds", [range(6), CAMPAIGN], ids=["some", "many"])
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
        slow = bucket.until(bucket.push(same), f"read {layout.INDEX}")
        slower = bucket.until(bucket.push(other), f"read {layout.INDEX}")
        bucket.alone(same)
        bucket.until(slow, "batch")
        bucket.until(slower, "its end")
        bucket.until(slow, "its end")
        assert not bucket.trouble(bucket.pushed()), bucket.log


def test_of_two_builds_the_one_that_is_sent_over_the_other_after_its_last_look_is_met():
    with world(0) as bucket:
        bucket.alone(module(0))
        over, slow = (bucket.push(module(1, contents), joins=0) for contents in "ab")
        bucket.until(over, "batch")
        bucket.until(slow, "batch").step()  # its file is sent
        bucket.until(slow, "batch")
        bucket.until(over, "its end")
        bucket.until(slow, "its end")
        assert not bucket.trouble(bucket.pushed()), bucket.log


def own_place(bucket, number):
    """The path of a module's file, and that below its digest."""
    (found,) = (path for path in bucket.files if path.endswith(f"MODULE_{number}/model.code"))
    return found, layout.blob_path(bucket.files[found][1])


@pytest.mark.parametrize("size", [7, 5000])
def test_what_somebody_put_below_a_digest_is_no_place_of_a_file_if_it_has_another(size):
    """As far as it tells: a push that reads what lies there sees other bytes of the same size, too."""
    with world(0) as bucket:
        bucket.alone(together(module(0), module(1)))
        own, spare = own_place(bucket, 1)
        bucket.write([(own, None), (spare, bytes(size))])
        bucket.alone(module(2), recheck=size == 5000)
        assert {name[-1] for record in bucket.records() for name in [one.name for one in record.record.modules]} == {
            "0",
            "2",
        }
        bucket.alone(together(module(0), module(1)))
        assert not bucket.trouble(bucket.pushed())
        assert own in bucket.files


def test_who_has_a_file_puts_it_at_its_own_place_again():
    with world(0) as bucket:
        bucket.alone(together(module(0), module(1)))
        own, spare = own_place(bucket, 1)
        bucket.write([(own, None)])
        bucket.alone(module(2))
        (there,) = bucket.records()
        assert spare in there.places.values()
        bucket.alone(together(module(0), module(1)))
        (there,) = bucket.records()
        assert not there.places
        assert own in bucket.files
        assert not bucket.trouble(bucket.pushed())


@pytest.mark.parametrize("first", [1, 2])
def test_a_file_of_two_modules_of_which_one_has_other_bytes_at_its_place_settles(first):
    with world(0) as bucket:
        one = module(1)
        (made,) = one.shared.record.modules
        modules = (made, structs.replace(made, name="standin-1.0/MODULE_2"))
        both = Offer(Shared(structs.replace(one.shared.record, modules=modules), {}), one.sources)
        bucket.alone(both)
        bucket.write(
            [
                (f"standin-1.0/MODULE_{first}/model.code", bytes(5000)),
                (f"standin-1.0/MODULE_{3 - first}/model.code", None),
            ]
        )
        for number in (3, 4):
            bucket.alone(module(number))
        asked = [bucket.alone(both).requests for _ in range(3)]
        assert not bucket.trouble(bucket.pushed())
        assert bucket.alone(both).result.draft.unchanged + len(bucket.pushes[-1].result.draft.held) == 1, asked


def test_a_record_has_the_marks_of_the_runs_whose_archives_it_has(monkeypatch):
    def of_command(*numbers, finished):
        made = together(*map(archive, numbers)).shared.record
        return Shared(structs.replace(made, model_type=COMMAND, soft={"command.finished": finished}), {})

    monkeypatch.setattr(document, "MOST_OF_A_COMMAND", 3)
    theirs, ours = of_command(0, 1, finished=False), of_command(2, finished=True)
    merged = document.merge(ours, theirs)
    assert (len(merged.record.modules), merged.record.soft["command.finished"]) == (3, True)
    more = of_command(3, finished=False)
    assert document.merge(more, merged) == merged, "it has as many as it may"
    assert not document.merge(ours, of_command(4, 5, 6, finished=False)).record.soft["command.finished"]
    ended = of_command(0, finished=True)
    assert document.merge(ended, theirs).record.soft["command.finished"]
    slower = tuple(structs.replace(module, seconds=7.0) for module in ended.record.modules)
    ended = structs.replace(ended, record=structs.replace(ended.record, modules=slower))
    assert document.merge(ended, theirs).record.soft["command.finished"], "two machines never take the same time"
    lost = document.with_modules(of_command(0, 1, finished=True), ours.record.modules)
    assert not document.merge(more, lost).record.soft["command.finished"], "archives of it are gone"


def names(bucket, record, count):
    """Somebody puts what is no addition where those to a record lie."""
    ends = (f"{number:012x}-{'c' * 8}-{number:010x}.json" for number in range(count))
    bucket.write([(f"{layout.additions(record.place)}/{end}", b"{}") for end in ends])


def test_that_a_run_of_a_command_came_to_its_end_is_not_lost_though_it_added_no_module():
    def of_command(*numbers, finished):
        made = together(*map(archive, numbers))
        record = structs.replace(made.shared.record, model_type="command", soft={"command.finished": finished})
        return Offer(Shared(record, {}), made.sources)

    for seed in range(40):
        with world(seed) as bucket:
            bucket.alone(of_command(0, finished=False))
            bucket.now += 100
            bucket.push(of_command(0, finished=True))
            bucket.push(of_command(0, 1, finished=False))
            bucket.run()
            assert not bucket.trouble(bucket.pushed())
            assert bucket.records()[0].record.soft["command.finished"], seed


def test_additions_to_records_that_are_not_there_cost_little():
    with world(0) as bucket:
        bucket.alone(module(0))
        for number in range(500):
            names(bucket, make_record(1000 + number)[0], 1)
        pushed = bucket.alone(module(1))
        assert not bucket.trouble(bucket.pushed())
        assert pushed.result.tries <= 2
        assert pushed.requests <= 15


def test_many_additions_that_cannot_be_used_are_not_all_read_and_go_after_a_day():
    with world(0) as bucket:
        bucket.alone(module(0))
        names(bucket, make_record()[0], 400)
        assert bucket.alone(module(1)).requests <= 1100
        bucket.now += DAY + 5
        costs = [bucket.alone(module(number)).requests for number in (2, 3, 4)]
        assert not bucket.trouble(bucket.pushed())
        assert costs[-1] <= 15


def test_additions_to_many_records_with_modules_whose_files_are_gone_cost_little():
    with world(0) as bucket:
        for key in range(1, 13):
            for number in (1, 2):
                bucket.alone(module(number, key=key))
        bucket.remove("MODULE_1/")
        for key in range(1, 13):
            bucket.alone(module(3, key=key))
        costs = []
        for number in range(6):
            bucket.now += DAY + 5
            costs.append(bucket.alone(module(number, key=99)).requests)
        assert max(costs) <= 25


def test_additions_to_one_record_with_modules_whose_files_are_gone_cost_little_after_a_day():
    with world(0) as bucket:
        for number in range(20):
            bucket.alone(module(number))
            bucket.now += 2000
        bucket.remove("MODULE_")
        costs = []
        for number in range(20, 26):
            costs.append(bucket.alone(module(number)).requests)
            bucket.now += DAY
        assert max(costs[2:]) <= 15


def test_a_crowd_that_pushes_different_records_asks_little():
    with world(0) as bucket:
        bucket.alone(module(0))
        crowd = [bucket.push(module(1, key=key)) for key in range(2, 22)]
        for push in crowd:
            push.ready += bucket.chance.random()
        bucket.run_timed(0.04)
        assert not bucket.trouble(bucket.pushed())
        assert sum(push.requests for push in crowd) <= 40 * len(crowd)
