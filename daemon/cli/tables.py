"""Status, topology and verdict lists as tables. Pure: from responses to rich renderables.

Columns that carry an identity (rank, verdict id, node) never wrap and are never cut; text columns fold.
Ranks of the same story are one row in the topology, so that thousands fit on a screen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scoutd.daemon.cli import ranges, words
from scoutd.daemon.cli.checks import Check
from scoutd.daemon.cli.render import STYLES, title
from scoutd.proto.v1 import query_pb2 as query
from scoutd.proto.v1 import verdict_pb2 as pb

MAX_MEMBER_ROWS: Final = 16
MAX_ROWS: Final = 64
"""Ranks that get a row each; of more, the most silent ones."""


def status(response: query.GetStatusResponse) -> RenderableType:
    """The agent in one line, a table per job, and what is degraded."""
    started = words.moment(response.started_at)
    since = f", since {words.clock(started)}" if started is not None else ""
    head = f"agent {response.version} on {response.node}, pid {response.pid}{since}, "
    parts: list[RenderableType] = [Text(f"{head}stall timeout {response.stall_timeout_s:g} s")]
    for job in response.jobs:
        parts += [Text(), *_job(job)]
    if not response.jobs:
        parts.append(Text("no job is running on this node"))
    if response.unobserved:
        parts.append(Text())
    parts += [
        Text(f"rank {each.rank}, pid {each.pid} is not observed: {each.reason}", style="yellow")
        for each in response.unobserved
    ]
    parts += [Text(f"degraded: {warning}", style="yellow") for warning in response.warnings]
    return Group(*parts)


def _job(job: query.JobStatus) -> list[RenderableType]:
    facts = [
        f"job {job.job}",
        f"generation {job.generation}",
        f"{len(job.ranks)} of {job.world_size} ranks here",
    ]
    facts += [f"run {job.run}"] if job.run else []
    facts += ["ended"] if job.ended else []
    alarms = "alarm" if job.suppressed == 1 else "alarms"
    facts += [f"{job.suppressed} suppressed {alarms}"] if job.suppressed else []
    shown = sorted(sorted(job.ranks, key=lambda rank: -rank.silent_s)[:MAX_ROWS], key=lambda rank: rank.rank)
    table = _table("rank", "step", "phase", "operation", "silent", "pending", "process")
    for rank in shown:
        table.add_row(*_rank(rank), style=_rank_style(rank))
    parts: list[RenderableType] = [Text(", ".join(facts), style="bold"), table]
    if len(shown) < len(job.ranks):
        parts.append(Text(f"… and {len(job.ranks) - len(shown)} ranks that are less silent"))
    parts += [
        Text(f"rank {rank.rank}: parts of the shim are off: {rank.shim_disabled}", style="yellow")
        for rank in shown
        if rank.shim_disabled
    ]
    parts += _replays(job)
    parts += _members(job)
    parts += [
        Text(f"{verdict.id}  {title(verdict)}: {verdict.summary}", style=STYLES.get(verdict.state, ""))
        for verdict in job.open
    ]
    return parts


def _replays(job: query.JobStatus) -> list[RenderableType]:
    """Cadence, cost and rounds in one line, and the recipes that deserve one of their own."""
    if not job.HasField("replay"):
        return []
    told = job.replay
    often = f"{told.variants} every {told.every} steps" if told.every else "on request only"
    rounds = f"{told.agreed} agreed, {told.deviating} deviating, {told.undecided} undecided"
    states = [recipe.state for recipe in told.recipes]
    modes = Counter(recipe.mode.lower() for recipe in told.recipes)
    inputs = ", ".join(f"{count} {mode}" for mode, count in sorted(modes.items()))
    ready = f"{states.count('READY')} of {len(states)} recipes ready" + (f" ({inputs})" if inputs else "")
    line = (
        f"replay: {often}, {ready}, {told.replays} replays, {told.share:.2%} of step time; rounds: {rounds}"
    )
    parts: list[RenderableType] = [Text(line)]
    if told.faults:
        parts.append(Text("replay: faults are injected on purpose (SCOUTD_FAULTS)", style="yellow"))
    notes = [(recipe, _recipe_note(recipe)) for recipe in told.recipes]
    shown = [(recipe, note) for recipe, note in notes if note][:MAX_MEMBER_ROWS]
    return [*parts, *(Text(f"recipe {recipe.name}: {note}", style="yellow") for recipe, note in shown)]


def _recipe_note(recipe: query.RecipeStatus) -> str:
    if recipe.aside:
        return f"set aside: {recipe.aside}"
    if recipe.state == "DISABLED":
        return f"disabled on {len(recipe.disabled)} ranks: {recipe.reason}"
    return recipe.reason


def _members(job: query.JobStatus) -> list[RenderableType]:
    """The job's agents: a table, or a line where they are many and all well."""
    if not job.members:
        return []
    gone = [member for member in job.members if member.state != "ALIVE"]
    if len(job.members) > MAX_MEMBER_ROWS:
        head = f"{len(job.members)} agents, {len(gone)} unreachable"
        names = ": " + ", ".join(member.node for member in gone[:MAX_MEMBER_ROWS]) if gone else ""
        return [Text(head + names, style="red" if gone else "")]
    table = _table("agent", "address", "state", "incarnation", "heard")
    for member in job.members:
        heard = "this one" if member.me else f"{words.duration(member.heard_ago_s)} ago"
        style = "" if member.state == "ALIVE" else "red"
        table.add_row(
            member.node, member.address, member.state.lower(), str(member.incarnation), heard, style=style
        )
    return [table]


def _rank(rank: query.RankStatus) -> list[str]:
    phase = "" if rank.phase == pb.PHASE_UNSPECIFIED else words.name(pb.Phase, rank.phase)
    return [
        str(rank.rank),
        str(rank.step),
        phase,
        rank.operation,
        words.duration(rank.silent_s),
        rank.pending,
        f"{rank.process.lower()} {rank.pid}" if rank.pid else rank.process.lower(),
    ]


def _rank_style(rank: query.RankStatus) -> str:
    return "" if rank.process == "RUNNING" else "red"


def verdicts(response: query.ListVerdictsResponse) -> RenderableType:
    """One row per verdict, oldest first."""
    if not response.verdicts:
        return Text("no verdicts")
    table = _table("verdict", "state", "since", "what")
    for verdict in response.verdicts:
        opened = words.moment(verdict.onset_at) or words.moment(verdict.opened_at)
        state = words.name(pb.State, verdict.state)
        table.add_row(
            verdict.id,
            Text(state, style=STYLES.get(verdict.state, "")),
            words.clock(opened) if opened is not None else "",
            words.sentence(verdict),
        )
    return table


def topology(response: query.GetTopologyResponse) -> RenderableType:
    """Per job: where the ranks are, which process groups they form, and who can be compared with whom."""
    parts: list[RenderableType] = []
    for job in response.jobs:
        known = "" if len(job.ranks) >= job.world_size else f", {len(job.ranks)} of them known"
        head = f"job {job.job}, generation {job.generation}, {job.world_size} ranks{known}"
        parts += [Text(head, style="bold"), *map(_mesh, job.meshes), _places(job), _groups(job)]
        parts += [_peers(job)] if job.peer_groups else []
        parts += [Text(f"warning: {warning}", style="yellow") for warning in job.warnings]
        parts += (
            [Text(f"not told: the ranks of {', '.join(job.missing)}", style="yellow")] if job.missing else []
        )
        parts.append(Text())
    return Group(*parts[:-1]) if parts else Text("no job is running on this node")


def _mesh(mesh: query.Mesh) -> Text:
    sizes = [f"{name}={size}" for name, size in zip(mesh.names, mesh.shape, strict=False)]
    return Text("mesh " + " × ".join(sizes or map(str, mesh.shape)))


def _peers(job: query.JobTopology) -> Table:
    table = _table("peers", "ranks")
    for group in job.peer_groups[:MAX_ROWS]:
        table.add_row(group.kind.lower(), ranges.name(group.ranks))
    if len(job.peer_groups) > MAX_ROWS:
        table.add_row("…", f"and {len(job.peer_groups) - MAX_ROWS} groups more")
    return table


def _places(job: query.JobTopology) -> Table:
    """Small jobs: a row per rank with its coordinates. Large ones: a row per node."""
    if len(job.ranks) > MAX_ROWS:
        nodes: dict[str, list[int]] = defaultdict(list)
        for place in job.ranks:
            nodes[place.node].append(place.rank)
        table = _table("node", "ranks")
        for node, ranks in nodes.items():
            table.add_row(node, ranges.name(ranks))
        return table
    table = _table("rank", "node", "local", "device", "coordinates")
    for place in job.ranks:
        axes = " ".join(f"{axis}={place.coordinates[axis]}" for axis in "dstpce" if axis in place.coordinates)
        local = str(place.local_rank) if place.local_rank >= 0 else "?"
        table.add_row(str(place.rank), place.node, local, place.device or "?", axes or "unknown")
    return table


def _groups(job: query.JobTopology) -> Table:
    table = _table("group", "backend", "description", "members")
    for group in job.groups:
        members = ranges.name(group.ranks) if group.ranks else "unknown"
        table.add_row(group.name or group.id, group.backend, group.description, members)
    return table


def checks(found: Iterable[Check]) -> Table:
    """One row per check; the remedy below what was found."""
    table = _table("check", "", "found")
    for check in found:
        text = f"{check.found}\n→ {check.remedy}" if check.remedy else check.found
        mark = Text("ok", style="green") if check.ok else Text("no", style="yellow")
        table.add_row(check.name, mark, text)
    return table


def limits(job: query.JobLimits) -> list[RenderableType]:
    """A job's limits of silence beside its history."""
    alarms = f"alarms fired: {job.confirmed}, held back: {job.suppressed}"
    head = Text(f"job {job.job}, generation {job.generation}: {alarms}", style="bold")
    if not job.limits:
        return [head, Text("no silence of a rank has ended yet")]
    table = _table("setting", "phases", "limit", "longest", "ended well", "suggested")
    for each in job.limits:
        table.add_row(
            each.setting,
            ", ".join(each.phases),
            f"{each.limit_s:g} s",
            words.duration(each.longest_s),
            str(each.ended),
            f"{each.suggested_s:g} s",
        )
    return [head, table]


def _table(*columns: str) -> Table:
    """The first column never wraps, the others fold; nothing is cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0, overflow="fold")
    return table
