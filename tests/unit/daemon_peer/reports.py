"""Strategies: any report and any message that an agent can hold."""

from __future__ import annotations

from hypothesis import strategies as st

from scoutd.agent import messages as m
from scoutd.agent import timesketch
from scoutd.agent.evidence import (
    Activity,
    Call,
    CallKind,
    CallState,
    Coordinate,
    DeathNote,
    Fingerprint,
    Fingerprints,
    Frame,
    GroupView,
    Members,
    NodeReport,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    SeenDeath,
    Source,
    Stack,
)
from scoutd.agent.replay import Part, RecipeKind, RecipeMode, RecipeState, RecipeView, ReplayResult
from scoutd.agent.tally import Camp, Tally

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
maybe_u64 = st.none() | u64
maybe_bool = st.none() | st.booleans()
finite = st.floats(0, 1e12)
runs = st.tuples(u32, st.integers(0, 8), st.integers(0, 64))
members = st.builds(Members, st.lists(runs, max_size=4).map(tuple))
prints = st.builds(Fingerprint, texts, texts, maybe_u64, st.none() | texts)
group_ids = st.integers(0, 3) | u64
histories = st.builds(Fingerprints, u64, st.lists(maybe_u64, min_size=1, max_size=16).map(tuple))
groups = st.builds(
    GroupView,
    group_ids,
    texts,
    texts,
    texts,
    st.none() | members,
    u64,
    maybe_u64,
    u64,
    history=st.none() | histories,
)
splits = st.lists(st.none() | st.integers(0, 2**32 - 2), max_size=16).map(tuple)
calls = st.builds(
    Call,
    group=group_ids,
    sequence=u64,
    kind=st.sampled_from(CallKind),
    state=st.sampled_from(CallState),
    fingerprint=prints,
    shape=texts,
    age_ns=u64,
    waiting=st.booleans(),
    source=st.sampled_from(Source),
    peer=st.none() | i32,
    tag=st.none() | i32,
    left_age_ns=maybe_u64,
    sends=splits,
    receives=splits,
)
processes = st.builds(
    ProcessView,
    st.sampled_from(ProcessStatus),
    st.none() | i32,
    st.none() | i32,
    maybe_u64,
    maybe_u64,
    maybe_bool,
)
coordinates = st.builds(
    Coordinate, u64, u64, st.sampled_from(Phase), texts, u64, waiting=st.booleans(), thread=u64
)
stacks = st.builds(
    Stack,
    st.lists(st.builds(Frame, texts, texts, i32, st.booleans()), max_size=3).map(tuple),
    u64,
    st.booleans(),
    maybe_bool,
    texts,
)
recipes = st.builds(
    RecipeView,
    u64,
    u64,
    u32,
    st.sampled_from(RecipeKind),
    st.sampled_from(RecipeMode),
    st.sampled_from(RecipeState),
    texts,
    texts,
)
parts = st.integers(0, (1 << len(Part)) - 1)
replays = st.builds(
    ReplayResult,
    u64,
    u64,
    u64,
    u64,
    u64,
    st.tuples(*[maybe_u64] * len(Part)),
    parts,
    parts,
    u64,
    maybe_u64,
    u64,
)
ranks = st.builds(
    RankReport,
    rank=u32,
    pid=st.integers(-(2**63), 2**63 - 1),
    local_rank=i32,
    device=texts,
    observed=st.booleans(),
    process=processes,
    coordinates=st.lists(coordinates, max_size=3).map(tuple),
    heartbeat_age_ns=maybe_u64,
    silent_ns=u64,
    attached_age_ns=u64,
    calls=st.lists(calls, max_size=4).map(tuple),
    groups=st.lists(groups, max_size=3).map(tuple),
    notes=st.lists(st.builds(DeathNote, texts, texts, texts, texts, texts, u64), max_size=2).map(tuple),
    activity=st.none() | st.builds(Activity, u64, finite, finite, maybe_bool),
    stack=st.none() | stacks,
    recipes=st.lists(recipes, max_size=2).map(tuple),
    replays=st.lists(replays, max_size=2).map(tuple),
)
seen = st.lists(st.builds(SeenDeath, u32, u64), max_size=3).map(tuple)
reports = st.builds(
    NodeReport, names, u64, names, u64, u64, u32, st.lists(ranks, max_size=3).map(tuple), seen=seen
)

marks = st.builds(m.Mark, names, st.just("") | names, st.integers(0, 2**62 - 1), u64, u64, u64)
mark_lists = st.lists(marks, max_size=4).map(tuple)
blobs = st.lists(st.builds(m.Blob, marks, st.binary(max_size=64), u64), max_size=3).map(tuple)
ranks_of_camps = st.sampled_from([((0, 1),), ((0, 4), (6, 2)), ((3, 1000),)])
camps = st.lists(st.builds(Camp, u64, ranks_of_camps), min_size=1, max_size=3).map(tuple)
times = st.dictionaries(
    st.integers(0, (1 << 20) - 1), st.integers(1, timesketch.MOST_CODE), max_size=timesketch.MOST
).map(lambda found: tuple(sorted(found.items())))
tallies = st.lists(st.builds(Tally, u64, u64, u64, u64, u32, camps, times), max_size=3).map(tuple)
rows = st.lists(st.tuples(u64, u64, u64, u32), max_size=4, unique_by=lambda row: row[3]).map(
    lambda found: sorted(found, key=lambda row: row[3])
)
"""Version, beat, held, position. Columns of nothing are some, none of them."""


def columns_of(roster: int, rows: list[tuple[int, int, int, int]], some: bool) -> m.Columns:
    version, beat, held, at = zip(*rows, strict=True) if rows else ((), (), (), ())
    return m.Columns(roster, version, beat, held, at if some or not rows else None)


columns = st.builds(columns_of, u64, rows, st.booleans())
rank_lists = st.lists(u32, max_size=4).map(tuple)
requests = st.one_of(
    st.builds(m.Probe, st.lists(marks, min_size=1, max_size=4).map(tuple), u64, tallies, u64, u32),
    st.builds(m.Relay, names, names),
    st.builds(m.Sync, mark_lists, tallies=tallies, columns=st.none() | columns),
    st.builds(m.Push, blobs),
    st.builds(m.Order, st.integers(1, 2**63 - 1), u64, st.integers(1, 64), st.integers(1, 2**63)),
    st.builds(m.Layout),
)
replies = st.one_of(
    st.builds(m.ProbeReply, mark_lists, u64, tallies, u64, u32),
    st.builds(m.RelayReply, st.booleans(), mark_lists),
    st.builds(
        m.SyncReply,
        blobs,
        st.lists(names, max_size=3).map(tuple),
        mark_lists,
        tallies,
        st.none() | columns,
        st.booleans(),
    ),
    st.builds(m.PushReply, u32),
    st.builds(m.OrderReply, rank_lists, rank_lists),
    st.builds(m.LayoutReply, st.binary(max_size=64)),
)
