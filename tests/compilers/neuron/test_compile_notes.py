"""What compiles took is noted, and the next ones are ordered and counted by it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachekit.compilers.neuron.compile_notes import CompileNote, CompileNotes, jobs_for_memory, jobs_for_peak

V = "neuronxcc-2.26.6360.0+6f180f47"
GIB = 1 << 30


def test_a_graph_takes_what_it_took_and_another_what_the_next_in_size_did(tmp_path):
    notes = CompileNotes(tmp_path / "more" / "notes")
    assert (notes.seconds(V, "MODULE_1", 100), notes.peak(V, "MODULE_1", 100)) == (None, None)
    notes.add(CompileNote(V, "MODULE_1", 100, 600.0, 4 * GIB), CompileNote(V, "MODULE_2", 1000, 60.0, 8 * GIB))
    notes.add(CompileNote(V, "MODULE_3", 900, 90.0))
    assert [notes.seconds(V, f"MODULE_{number}", size) for number, size in ((1, 100), (2, 1000))] == [600.0, 60.0]
    assert notes.seconds(V, "MODULE_9", 450) == 45.0, "half of the third"
    assert notes.seconds("neuronxcc-2.26.6360.0", "MODULE_1", 100) == 600.0, "the commit is not always known"
    assert notes.seconds("neuronxcc-2.27.1", "MODULE_1", 100) is None
    # The third's memory was not measured; what is larger needs more, what is smaller no less than was seen.
    assert notes.peak(V, "MODULE_3", 900) == 8 * GIB
    assert notes.peak(V, "MODULE_9", 2000) == 16 * GIB
    assert notes.largest_peak(V) == 8 * GIB
    notes.add(CompileNote(V, "MODULE_1", 100, 500.0))
    assert notes.seconds(V, "MODULE_1", 100) == 500.0, "the last one counts"


@given(st.binary(max_size=300))
def test_damage_is_passed_over(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("notes") / "notes"
    path.write_bytes(data + b"\n")
    notes = CompileNotes(path)
    notes.add(CompileNote(V, "MODULE_1", 100, 5.0))
    assert notes.seconds(V, "MODULE_1", 100) == 5.0


def test_the_file_does_not_grow_without_end(tmp_path):
    path = tmp_path / "notes"
    notes = CompileNotes(path)
    for _ in range(30):
        notes.add(*(CompileNote(V, f"MODULE_{number}", 100, 5.0) for number in range(1000)))
    notes.add(CompileNote(V, "MODULE_X", 1, 7.0))
    assert path.stat().st_size < 2 << 20
    assert notes.seconds(V, "MODULE_X", 1) == 7.0
    assert [file.name for file in tmp_path.iterdir()] == ["notes"]


def test_what_cannot_be_written_is_not(tmp_path):
    (tmp_path / "file").touch()
    CompileNotes(tmp_path / "file" / "notes").add(CompileNote(V, "MODULE_1", 1, 1.0))


def test_how_many_fit():
    assert [jobs_for_memory(gib * GIB) for gib in (1, 32, 64, 65, 512)] == [1, 1, 1, 2, 8]
    assert jobs_for_peak(4 * GIB, 64 * GIB, 64) == 8
    assert jobs_for_peak(4 * GIB, 64 * GIB, 2) == 2, "no more than processors"
    assert jobs_for_peak(100 * GIB, 64 * GIB, 64) == 1
