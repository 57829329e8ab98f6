"""When a peer is asked whom it knows."""

from __future__ import annotations

import itertools
import random

from scoutd.agent.acquaintance import ASK_PAUSE_NS, MOST_JOIN_PAUSE_NS, Acquaintance
from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import Mark, Outgoing, Sync
from scoutd.agent.replica import Replica
from scoutd.agent.settings import NS_PER_S, ExchangeSettings


def acquaintance() -> Acquaintance:
    return Acquaintance(ExchangeSettings(), random.Random(1))


def test_seeds_are_asked_less_and_less_often_and_never_oneself() -> None:
    one, alone = acquaintance(), Replica("m", "me", 1)
    asked = [now for now in range(0, 40 * NS_PER_S, NS_PER_S // 10) if one.seeds(("a", "me"), alone, now)]
    pauses = [later - now for now, later in itertools.pairwise(asked)]
    assert pauses[:3] == [NS_PER_S, 2 * NS_PER_S, MOST_JOIN_PAUSE_NS]
    assert set(pauses[3:]) == {MOST_JOIN_PAUSE_NS}


def test_a_peer_that_knows_many_more_is_asked_at_once_and_not_again_soon() -> None:
    one = acquaintance()
    assert one.ask(False, 4, 100, 0)
    assert not one.ask(False, 4, 100, ASK_PAUSE_NS - 1)
    assert one.ask(False, 4, 100, ASK_PAUSE_NS)


def test_a_few_that_are_new_are_left_to_the_piggybacks_for_a_while() -> None:
    one = acquaintance()
    asked = [s for s in range(60) if one.ask(False, 64, 65, s * NS_PER_S)]
    assert asked == [24, 48]


def test_a_difference_that_was_made_up_for_in_between_begins_anew() -> None:
    one = acquaintance()
    for s in range(60):
        assert not one.ask(s % 20 == 0, 64, 65, s * NS_PER_S)


def settle(agents: dict[str, Exchange], sent: list[Outgoing], one: Exchange, now: int) -> int:
    """Every request is answered at once; returns how many synchronisations there were."""
    count = 0
    while sent:
        out = sent.pop()
        count += isinstance(out.request, Sync)
        sent += one.on_reply(out, agents[out.address].handle(out.request, now), now)
    return count


def test_many_agents_that_start_at_one_seed_know_each_other_soon_and_then_only_probe() -> None:
    agents = {
        f"n{k}:1": Exchange(
            Replica(f"n{k}", f"n{k}:1", 1), ExchangeSettings(), random.Random(k), seeds=("n0:1",)
        )
        for k in range(60)
    }
    seen, late = [], 0
    for step in range(1200):
        now = step * NS_PER_S // 20
        for one in agents.values():
            count = settle(agents, one.tick(now), one, now)
            late += count if step > 600 else 0
        seen.append(min(len(one.replica.entries) for one in agents.values()))
    assert seen.index(60) < 20 * 20
    assert late == 0


def test_a_wild_number_of_known_agents_silences_nobody() -> None:
    one = acquaintance()
    assert one.ask(False, 2, (1 << 32) - 1, 0)
    assert one.ask(False, 2, 50, 400 * NS_PER_S)


def test_two_groups_that_do_not_know_each_other_meet_through_a_seed() -> None:
    one, replica = acquaintance(), Replica("a", "a:1", 1)
    replica.merge_marks([Mark("b", "b:1", 1, 1, 1)], 0)
    asked = [
        (s, found) for s in range(100) if (found := one.seeds(("a:1", "b:1", "c:1"), replica, s * NS_PER_S))
    ]
    assert asked == [(30, ["c:1"]), (60, ["c:1"]), (90, ["c:1"])]
    replica.merge_marks([Mark("c", "c:1", 1, 1, 1)], 0)
    assert not any(one.seeds(("a:1", "b:1", "c:1"), replica, s * NS_PER_S) for s in range(100, 200))
