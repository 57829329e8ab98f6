"""Calls that were over before anybody waited: members met at one place, called different things, and went on.

An all_reduce of int32 that meets one of float32, SUM that meets MAX, broadcasts from different roots: where
the bytes fit, no backend says a word, and the results are wrong. So the observer compares the histories of
its ranks while the job runs (``daemon.observe.meetings``); what differs is *contested* and judged here by
exact C3 over all members of the group. Members on other nodes count as missing: they never help a value to a
majority.

What may legally differ is no difference (``essence``): an operation that only moves bytes agrees if it moves
equally many, whatever the members call their type, and of what has no size in common sizes are not compared.

A verdict of this kind lives apart from those of a hang: progress resolves nothing, and it explains no later
silence of the same ranks. Each group is judged once. Splits that did not fit together are of this kind, too,
once their exchange is over (``splits``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Hashable, Iterable, Mapping
from typing import Final

from scoutd.agent import alignment, mismatch
from scoutd.agent.alignment import Shift, Stream
from scoutd.agent.consensus import Consensus, exact
from scoutd.agent.evidence import Contested, Fingerprint, NodeReport, Phase, RankReport
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import nodes_of, ranks_text
from scoutd.agent.replayledger import ReplayLedger
from scoutd.agent.verdict import (
    Action,
    Cause,
    Cleared,
    EvidenceItem,
    Implicated,
    Scope,
    Status,
    Symptom,
    Verdict,
    verdict_id,
)

FAMILIES: Final = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_coalesced": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}
"""Names of one operation: what comes out is the same."""

MOVES_BYTES: Final = frozenset(
    {"broadcast", "all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"}
)
UNSIZED: Final = frozenset({"all_gather", "reduce_scatter"})
"""Families whose members count elements in different ways, or may bring unequal shares."""

DIGITS: Final = re.compile(r"\d+")


def essence(fingerprint: Fingerprint) -> Hashable:
    """What members must agree on for the result to be right."""
    operation = FAMILIES.get(fingerprint.operation, fingerprint.operation)
    numel = None if operation in UNSIZED else fingerprint.numel
    if operation not in MOVES_BYTES:
        return operation, fingerprint.dtype, numel, fingerprint.argument
    size = None if numel is None else numel * _bytes_of(fingerprint.dtype)
    return operation, "", size, fingerprint.argument


def _bytes_of(dtype: str) -> int:
    """Of one element, read from the name: "float32", "complex64", "float8_e4m3fn"; "bool" has none."""
    digits = DIGITS.search(dtype)
    return max(1, int(digits.group()) // 8) if digits else 1


def first_difference(streams: Mapping[int, Mapping[int, Hashable]]) -> int | None:
    """The lowest sequence at which two ranks have told different things."""
    said: dict[int, Hashable] = {}
    odd: list[int] = []
    for stream in streams.values():
        for sequence, value in stream.items():
            if said.setdefault(sequence, value) != value:
                odd.append(sequence)
    return min(odd, default=None)


def consensus(found: Contested) -> Consensus:
    """Exact C3 over all members; those of other nodes are missing. Where nobody knows the members there may
    be as many elsewhere as are here: nobody has a majority."""
    said = {rank: essence(call.fingerprint) for rank, call in found.calls}
    if found.members is None:
        return exact([*said.values(), *[None] * len(said)])
    return exact([said.get(rank) for rank in found.members])


def finding(found: Contested, report: NodeReport) -> Finding:
    """COLLECTIVE_MISMATCH of the minority, or of nobody; COLLECTIVE_MISSING where its calls are shifted."""
    result = consensus(found)
    members = tuple(found.members) if found.members is not None else tuple(r for r, _ in found.calls)
    named = result.status is Status.ATTRIBUTED
    minority = [r for r, out in zip(members, result.outliers, strict=True) if out] if named else []
    calls = dict(found.calls)
    ranks = {each.rank: each for each in report.ranks}
    moved = _shifts(found, minority, members)
    place = f"#{found.sequence} of {found.name}"
    return Finding(
        cause=Cause.COLLECTIVE_MISSING if moved else Cause.COLLECTIVE_MISMATCH,
        status=result.status if named else Status.INCONCLUSIVE,
        scope=Scope.RANK if named else Scope.GROUP,
        summary=f"{_blamed(minority, moved, report)} in collective {place}, and nothing failed: its results "
        f"are wrong — {'; '.join(_sides(found))}",
        action=Action.FIX_PROGRAM,
        anchor=f"told in group {found.group:016x}",
        onset_age_ns=max(call.age_ns for call in calls.values()),
        implicated=tuple(
            _implicate(ranks.get(r), r, report.node, _reason(found, r, moved.get(r))) for r in minority
        ),
        suspects=tuple(sorted(calls)),
        cleared=tuple(
            Cleared(r, (), f"called {mismatch.describe(call)}, like the majority")
            for r, call in sorted(calls.items())
            if named and r not in minority
        ),
        phase=Phase.COLLECTIVE,
        operation=mismatch.describe(calls[minority[0] if minority else min(calls)]),
        peer_group=members,
        evidence=(
            *(EvidenceItem(r, "fingerprint", mismatch.describe(calls[r])) for r in minority),
            *(EvidenceItem(None, "fingerprint", side) for side in _sides(found, minority)),
            *(EvidenceItem(r, "alignment", each.text) for r, each in sorted(moved.items())),
            *_absent(members, calls),
            EvidenceItem(None, "consensus", f"C3 over fingerprints: {_outcome(result)}"),
        ),
        symptom=Symptom.SDC,
    )


def _shifts(found: Contested, minority: list[int], members: tuple[int, ...]) -> dict[int, Shift]:
    """What shows that every rank of the minority is off by some collectives; empty if one is not."""
    streams: dict[int, Stream] = {rank: told.by_sequence() for rank, told in found.histories}
    common = alignment.majority(streams.values(), len(members))
    seen: dict[int, Shift] = {}
    for rank in minority:
        told = alignment.shift(streams.get(rank, {}), common)
        if told is None:
            return {}
        seen[rank] = told
    return seen


def _blamed(minority: list[int], moved: Mapping[int, Shift], report: NodeReport) -> str:
    if not minority:
        return "the members called different things"
    what = f"{moved[minority[0]].what} and called" if moved else "called"
    return f"{ranks_text(minority)}{nodes_of([report.node])} {what} something else than the others"


def _reason(found: Contested, rank: int, moved: Shift | None) -> str:
    called = f"called {mismatch.describe(dict(found.calls)[rank])}"
    return called if moved is None else f"{moved.what}: {moved.text}; {called}"


def _sides(found: Contested, apart: Collection[int] = ()) -> list[str]:
    """ "rank 2: all_reduce float32 [8] MAX": who called what, the fewest first; ranks ``apart`` left out."""
    sides: dict[str, list[int]] = {}
    for rank, call in found.calls:
        if rank not in apart:
            sides.setdefault(mismatch.describe(call), []).append(rank)
    return [f"{ranks_text(r)}: {side}" for side, r in sorted(sides.items(), key=lambda s: len(s[1]))]


def _absent(members: tuple[int, ...], calls: Mapping[int, object]) -> list[EvidenceItem]:
    away = [rank for rank in members if rank not in calls]
    if not away:
        return []
    return [EvidenceItem(None, "fingerprint", f"of {ranks_text(away)} nothing is known at that place")]


def _outcome(result: Consensus) -> str:
    return result.status.value + (f" ({result.reason})" if result.reason else "")


def _implicate(known: RankReport | None, rank: int, node: str, reason: str) -> Implicated:
    pid, device = (known.pid, known.device) if known is not None else (0, "")
    return Implicated(rank, node, pid, device, reason)


class ContestedWatch:
    """One job's contested places, each group judged once. ``limit`` bounds the closed verdicts."""

    def __init__(self, limit: int) -> None:
        self._ledger: Final = ReplayLedger(limit)
        self._judged: Final[set[int]] = set()
        self._noted: Final[set[Hashable]] = set()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self._ledger.verdicts

    def take(self, report: NodeReport, now_ns: int) -> list[Verdict]:
        """Verdicts that this report of our own node opens."""
        changed: list[Verdict] = []
        for found in report.contested:
            if found.group not in self._judged:
                self._judged.add(found.group)
                made = finding(found, report)
                changed += self._ledger.take(made, report.job, report.generation, now_ns)
        return changed

    def note(
        self, findings: Iterable[Finding], known: Container[str], job: str, generation: int, now_ns: int
    ) -> list[Verdict]:
        """Verdicts that other findings of this kind open, of each cause one in a group. ``known`` has the ids
        of events that were found while they went on."""
        changed: list[Verdict] = []
        for found in findings:
            about = (found.cause, found.peer_group)
            identity = verdict_id(job, generation, found.cause, tuple(sorted(found.ranks)), found.anchor)
            if about not in self._noted and identity not in known:
                self._noted.add(about)
                changed += self._ledger.take(found, job, generation, now_ns)
        return changed

    def restart(self, generation: int, now_ns: int) -> list[Verdict]:
        """A new generation runs: nothing before it counts."""
        self._judged.clear()
        self._noted.clear()
        return self._ledger.restart(generation, now_ns)
