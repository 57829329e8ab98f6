"""What a right verdict looks like, in one assertion each; a failure prints the whole outcome."""

from __future__ import annotations

from collections.abc import Sequence

from tests.e2e.harness import Outcome, Verdict, cleared, named


def blames(
    outcome: Outcome,
    cause: str,
    ranks: Sequence[int],
    *,
    world: int = 4,
    phase: str = "",
    operation: str = "",
) -> Verdict:
    """Exactly one fault: HANG, ATTRIBUTED, ``cause``, these ranks alone; everybody else is cleared.

    ``phase`` and ``operation`` (a part of it) are of the first implicated rank; empty: not looked at.
    """
    verdict = outcome.fault
    text = f"\n{verdict}\n{outcome}"
    assert verdict["cause"] == cause, text
    assert named(verdict) == list(ranks), text
    assert (verdict["symptom"], verdict["status"]) == ("HANG", "ATTRIBUTED"), text
    assert sorted(cleared(verdict)) == [r for r in range(world) if r not in ranks], text
    assert not phase or verdict["phase"] == phase, text
    assert operation in verdict["operation"], text
    assert verdict["summary"], text
    assert verdict["confirmed_at"], text
    assert verdict["detection_latency_ms"] > 0, text
    return verdict


def waits(outcome: Outcome, culprit: int, world: int = 4) -> None:
    """Every cleared rank waits for the culprit and for nobody else."""
    expected = {r: [culprit] for r in range(world) if r != culprit}
    assert cleared(outcome.fault) == expected, f"\n{outcome.fault}\n{outcome}"


def stopped(outcome: Outcome) -> None:
    """``scoutd run`` ended the job at the verdict and said so with its exit code."""
    assert outcome.code == 3, str(outcome)
    assert "Traceback" not in shown_by_scoutd(outcome), str(outcome)


def no_fault(outcome: Outcome, code: int = 0) -> None:
    """The job came to its own end and nothing was ever confirmed."""
    assert outcome.code == code, str(outcome)
    assert outcome.faults == [], str(outcome)


def suppressed(outcome: Outcome, *reasons: str) -> None:
    """An alarm was held back, one of ``reasons`` is in its explanation, and it is closed by now."""
    texts = [v["suppressed_because"].lower() for v in outcome.suppressed]
    assert texts, str(outcome)
    assert any(reason.lower() in text for reason in reasons for text in texts), f"{texts}\n{outcome}"
    last = {v["id"]: v["state"] for v in outcome.verdicts}
    assert set(last.values()) <= {"SUPPRESSED", "RESOLVED"}, f"{last}\n{outcome}"


def fingerprints(verdict: Verdict, *parts: str) -> None:
    """The evidence shows the fingerprints that disagree; each of ``parts`` is in one of them."""
    texts = [item["text"] for item in verdict["evidence"] if item["kind"] == "fingerprint"]
    assert len(texts) >= 2, verdict["evidence"]
    assert all(any(part in text for text in texts) for part in parts), texts


def shown_by_scoutd(outcome: Outcome) -> str:
    """The lines of standard error that are not a trainer's own (torch prefixes those of ranks)."""
    return "\n".join(line for line in outcome.err.splitlines() if line.startswith("scoutd"))
