"""From a trainer's state to the report that the shim and the observer would make of it."""

from __future__ import annotations

from dataclasses import replace

from scoutd.agent.evidence import (
    Activity,
    Call,
    CallKind,
    CallState,
    Coordinate,
    DeathNote,
    Fingerprint,
    Frame,
    GroupView,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    Source,
    Stack,
)
from tests.simulation.timeline import ns
from tests.simulation.trainers import Place, Trainer, Training

USUAL = Fingerprint("all_reduce", "float32", 8, "SUM")
ODD = Fingerprint("all_reduce", "float32", 6, "SUM")


def report_of(
    training: Training, trainer: Trainer, stack: tuple[Stack, int] | None, sampled: bool
) -> RankReport:
    """The rank as seen now. ``stack`` with the moment of its capture; ``sampled``: activity was asked for."""
    now = training.timeline.now_ns
    silent = now - max(trainer.moved_ns, trainer.noted_ns)
    frozen = trainer.frozen_ns if trainer.frozen_ns is not None else trainer.gone_ns
    since = 0 if frozen is None else now - frozen
    return RankReport(
        rank=trainer.rank,
        pid=1000 + trainer.rank,
        local_rank=trainer.rank % 8,
        device="cpu",
        observed=True,
        process=_process(trainer, now),
        coordinates=(_coordinate(training, trainer, now),),
        heartbeat_age_ns=since + ns(0.2),
        silent_ns=silent,
        attached_age_ns=now,
        calls=_calls(training, trainer, now),
        groups=_groups(training, trainer, since),
        notes=_notes(trainer, now),
        activity=_activity(trainer) if sampled and trainer.alive else None,
        stack=_aged(stack, trainer, now),
    )


def _process(trainer: Trainer, now: int) -> ProcessView:
    if trainer.gone_ns is not None:
        code, signal = trainer.exit
        return ProcessView(ProcessStatus.GONE, code, signal, gone_age_ns=now - trainer.gone_ns)
    if trainer.hung == "stop" and trainer.frozen_ns is not None:
        return ProcessView(ProcessStatus.STOPPED, stopped_age_ns=now - trainer.frozen_ns)
    return ProcessView(ProcessStatus.RUNNING)


def _coordinate(training: Training, trainer: Trainer, now: int) -> Coordinate:
    waits = (trainer.waits_at or trainer.failed_at) is not None and not training.recorder
    phase = Phase.COLLECTIVE if waits else trainer.phase
    operation = "all_reduce" if waits else f"block.{trainer.op}"
    waiting = waits and trainer.waits_at is not None
    return Coordinate(trainer.step, trainer.ordinal, phase, operation, now - trainer.moved_ns, waiting)


def _calls(training: Training, trainer: Trainer, now: int) -> tuple[Call, ...]:
    return tuple(_call(training, trainer, place, since, now) for place, since in trainer.open.items())


def _call(training: Training, trainer: Trainer, place: Place, since: int, now: int) -> Call:
    failed = place == trainer.failed_at
    source = Source.RECORDER if training.recorder else Source.PUBLIC
    fingerprint = ODD if place in trainer.odd else USUAL
    if training.recorder:
        fingerprint = replace(fingerprint, argument=None)
    return Call(
        place[0],
        place[1],
        CallKind.COLLECTIVE,
        CallState.FAILED if failed else CallState.PENDING,
        fingerprint,
        f"[{fingerprint.numel}]",
        now - since,
        place == trainer.waits_at and not training.recorder,
        source,
        left_age_ns=now - trainer.noted_ns if failed else None,
    )


def _groups(training: Training, trainer: Trainer, since: int) -> tuple[GroupView, ...]:
    return tuple(
        GroupView(
            g.identity, g.name, g.name, "gloo", g.members, trainer.enqueued.get(g.identity, 0), None, since
        )
        for g in training.grid.group_of[trainer.rank].values()
    )


def _notes(trainer: Trainer, now: int) -> tuple[DeathNote, ...]:
    return () if trainer.note is None else (replace(trainer.note, age_ns=now - trainer.noted_ns),)


def _activity(trainer: Trainer) -> Activity:
    return Activity(ns(1), 1.0 if trainer.hung == "busy" else 0.01, 0.0, False)


def capture(training: Training, trainer: Trainer, native: bool) -> Stack:
    """The truth, as far as that kind of stack can tell it."""
    if not trainer.alive:
        return Stack((), 0, native, None, "the process is gone")
    if trainer.hung == "stop":
        return Stack((), 0, native, None, "the process is stopped")
    frame = Frame("forward", "/home/me/train.py", 88)
    return Stack((frame,), 0, native, _waits(training, trainer, native))


def _waits(training: Training, trainer: Trainer, native: bool) -> bool | None:
    inside = trainer.waits_at is not None and not trainer.hung
    if native or trainer.hung in ("sleep", "gil", "busy"):
        return inside if not trainer.hung else False
    if inside and not training.recorder:
        return True
    return None


def _aged(stack: tuple[Stack, int] | None, trainer: Trainer, now: int) -> Stack | None:
    if stack is None or trainer.moved_ns > stack[1]:
        return None
    return replace(stack[0], age_ns=now - stack[1])
