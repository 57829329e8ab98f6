"""Verdicts to render, as an agent would send them."""

from __future__ import annotations

from typing import Any

from scoutd.proto.v1 import verdict_pb2 as pb


def hang(**changed: Any) -> pb.Verdict:
    """Rank 2 of 4 hangs in forward."""
    verdict = pb.Verdict(
        id="0a1b2c3d4e5f",
        job="run7-9f3a",
        generation=1,
        symptom=pb.HANG,
        status=pb.ATTRIBUTED,
        state=pb.CONFIRMED,
        cause=pb.RANK_STALLED,
        scope=pb.RANK,
        phase=pb.FORWARD,
        operation="blocks.2 (Block)",
        summary="rank 2 stopped in FORWARD, blocks.2 (Block)",
        action=pb.RESTART_IN_PLACE,
        onset_at="2026-11-30T01:00:05Z",
        opened_at="2026-11-30T01:00:10.1Z",
        confirmed_at="2026-11-30T01:00:10.3Z",
        detection_latency_ms=5300,
        peer_group=[0, 1, 2, 3],
        implicated=[pb.Implicated(rank=2, node="node-a", pid=4711, device="cpu", reason="waits for nobody")],
        cleared=[
            pb.Cleared(rank=r, waits_for=[2], reason="waits in all_reduce #7 of default_pg")
            for r in (0, 1, 3)
        ],
        stacks=[
            pb.Stack(
                rank=2,
                frames=[
                    pb.Frame(function="clock_nanosleep", file="libc.so.6", native=True),
                    pb.Frame(function="forward", file="/train/model.py", line=88),
                    pb.Frame(function="_call_impl", file="/env/site-packages/torch/nn/module.py", line=1750),
                ],
            )
        ],
    )
    verdict.MergeFrom(pb.Verdict(**changed))
    return verdict


def mismatch() -> pb.Verdict:
    verdict = hang(cause=pb.COLLECTIVE_MISMATCH, action=pb.FIX_PROGRAM, phase=pb.COLLECTIVE)
    for rank in range(4):
        text = "broadcast float32 [4] root=0" if rank == 2 else "all_reduce float32 [4] SUM"
        verdict.evidence.add(rank=rank, kind="fingerprint", text=text)
    return verdict


def death() -> pb.Verdict:
    verdict = hang(cause=pb.PROCESS_DEAD)
    verdict.death_notes.add(
        rank=2,
        type="ValueError",
        message="bad batch",
        location="torch.py:1 in f",
        user_location="/train/model.py:90 in load",
    )
    return verdict
