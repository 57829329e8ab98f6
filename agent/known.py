"""What a decision depends on of what was decided before: with it a moment can be judged again."""

from __future__ import annotations

from dataclasses import dataclass

from scoutd.agent.evidence import Phase
from scoutd.agent.verdict import Action, Cause, Implicated, Scope, State, Status, Symptom, Verdict


@dataclass(frozen=True, slots=True)
class Known:
    """One event that is going on."""

    id: str
    cause: Cause
    state: State
    ranks: tuple[int, ...]
    blamed: tuple[Implicated, ...]
    opened_age_ns: int
    provisional: bool = False
    ending: bool = False

    def verdict(self, symptom: Symptom, status: Status, now_ns: int) -> Verdict:
        """Its verdict, which says no more than that."""
        return Verdict(
            id=self.id,
            job="",
            generation=1,
            symptom=symptom,
            status=status,
            state=self.state,
            cause=self.cause,
            scope=Scope.RANK,
            phase=Phase.NONE,
            operation="",
            summary="",
            action=Action.NONE,
            opened_ns=now_ns - self.opened_age_ns,
            implicated=self.blamed,
        )
