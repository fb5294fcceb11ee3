"""What is said of a workspace that is not, or not wholly, kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.run_facts import RunFacts
from runner.workspace_gaps import omitted_of, unmeasured, workspace_notes

UNREAD = RunFacts(exit_status=0, workspace_unread=True, workspace_unread_why="the tree changed while it was read")


def test_nothing_is_said_of_a_whole_workspace() -> None:
    """The control: no note, and nothing stands against looking at it."""
    assert workspace_notes(RunFacts(), omitted_of({"omitted": []})) == ()
    assert unmeasured(RunFacts(), ()) == ""


def test_an_unread_workspace_is_said_with_its_cause() -> None:
    """The cause stands in the note; an attempt of an earlier release, which kept none, is told without."""
    (note,) = workspace_notes(UNREAD, ())
    assert note == "the workspace could not be read, so nothing of it is kept: the tree changed while it was read"
    assert unmeasured(UNREAD, ()) == note
    assert workspace_notes(RunFacts(workspace_unread=True), ())[0].endswith("no cause is kept")


def test_omissions_are_counted_and_few_are_quoted() -> None:
    """Three are quoted, escaped and short; the rest is a number. The top of the tree has a name too."""
    rows = [{"why": "unreadable", "path": "\x1b[2J\n" + "x" * 9000}, {"why": "depth", "path_hex": "ff0a"}]
    rows += [{"why": "unreadable", "path": ""}] * 3
    (note,) = workspace_notes(RunFacts(), rows)
    assert note.isascii()
    assert note.isprintable()
    assert len(note) < 600
    assert "the workspace itself: it could not be read; and 2 more" in note


def test_a_file_too_large_to_be_shown_stands_against_no_check() -> None:
    """Its entry is there, and no check is ever shown so large a content; it is noted all the same. Any other omission may hide what a check looks for."""
    large = [{"why": "file-bytes", "path": "big"}]
    assert len(workspace_notes(RunFacts(), large)) == 1
    assert unmeasured(RunFacts(), large) == ""
    for why in ("entries", "names", "total-bytes", "depth", "unreadable", "of a later release"):
        assert unmeasured(RunFacts(), [*large, {"why": why, "path": "x"}])


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["omitted", "why", "path", "path_hex"]), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_listing_is_read(listing: object) -> None:
    """Whatever stands in the part, a note is one line of plain text, and rows of another form are not passed over in silence."""
    rows = omitted_of(listing)
    notes = workspace_notes(RunFacts(), rows)
    assert bool(notes) == bool(rows)
    assert all(note.isascii() and note.isprintable() for note in notes)
