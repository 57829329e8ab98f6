"""Garbage thrown at a live agent: it stays up, its memory stays bounded, and it blames nobody.

Each run is seeded; a failure prints the seed (``SCOUTD_FUZZ_SEED`` repeats it). The slices here run with
every test; the campaigns (``-m campaign``) throw 10^5 messages and 10^4 files.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest

from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.messages import Blob, Columns, Layout, Mark, Order, Probe, Push, Relay, Request, Sync
from scoutd.daemon.peer import messagecodec, seal
from scoutd.daemon.peer.reportcodec import encode_report
from scoutd.daemon.peer.seal import HELLO, Membership
from scoutd.daemon.peer.sessions import request_code
from scoutd.proto import shm
from scoutd.proto.v1 import peer_pb2 as pb
from tests.chaos.mutate import ANY_LENGTH, SAME_LENGTH, mutated
from tests.chaos.prey import HERE, JOB, Prey, prey
from tests.contract.shm_examples import EXAMPLES
from tests.e2e.harness import named, until
from tests.unit.agent.job import Job
from tests.unit.daemon_observe.writer import CALL, Writer

SEED = int(os.environ.get("SCOUTD_FUZZ_SEED", secrets.randbelow(1 << 32)))
GROWTH_MB = 64.0
"""What an agent may grow by, whatever it is told: caches, arenas, bounded tables."""

OTHERS = range(2, 34)
"""Ranks that exist as garbage alone."""

IN_FLIGHT = 32
GREET_EVERY = 500


@pytest.fixture(scope="module")
def target() -> Iterator[Prey]:
    with prey() as made:
        yield made


class Attacker:
    """A member of the job, or not, that sends mutated requests and counts what comes back."""

    def __init__(self, random: Random, channel: grpc.aio.Channel, member: Membership) -> None:
        self.random = random
        self.channel = channel
        self.member = member
        self.answers: Counter[str] = Counter()
        self.session = bytes(16)
        self.counter = 0
        self.roster = self.known = 1
        self.report = report_of(member.node)
        self.bodies = {messagecodec.kind_of(r): messagecodec.encode(r) for r in requests(member.node)}

    async def attack(self, count: int) -> None:
        for start in range(0, count, GREET_EVERY):
            await self.greet()
            gate = asyncio.Semaphore(IN_FLIGHT)
            size = min(GREET_EVERY, count - start)
            await asyncio.gather(*(self._one(gate) for _ in range(size)))

    async def greet(self) -> None:
        """Who has no key tries with a session that nobody gave it."""
        body = pb.Greeting(challenge=secrets.token_bytes(16)).SerializeToString()
        sealed = seal.request(self.member, HELLO, b"", 0, body)
        reply = await self.send(HELLO, sealed.SerializeToString())
        if reply is not None:
            self.session, self.counter = seal.open_header(reply).session, 0

    async def _one(self, gate: asyncio.Semaphore) -> None:
        async with gate:
            kind, data = self.mutant()
            reply = await self.send(kind, data)
            if kind == "Probe" and reply is not None:
                told = pb.ProbeResponse.FromString(reply.body)
                self.roster, self.known = told.roster, told.known

    def mutant(self) -> tuple[str, bytes]:
        """A request whose content, body, header or envelope is garbage; all but the last are sealed well."""
        kind = self.random.choice([HELLO, *self.bodies])
        body = self.bodies.get(kind) or pb.Greeting(challenge=bytes(16)).SerializeToString()
        self.counter += 1
        where = self.random.choice(("content", "content", "body", "header", "envelope"))
        if where == "content" and kind != HELLO:
            body = messagecodec.encode(self.wild(kind))
        elif where == "body":
            body = mutated(self.random, body)
        sealed = seal.request(self.member, kind, self.session, self.counter, body)
        if where == "header":
            sealed.header = mutated(self.random, sealed.header)
            key = self.member.keys[0]
            sealed.mac = request_code(key, kind, sealed.header, sealed.body)
        data = sealed.SerializeToString()
        return kind, mutated(self.random, data) if where == "envelope" else data

    def wild(self, kind: str) -> Request:
        """A well-formed request that says wild things: marks of anybody, mutated reports."""
        marks = tuple(self.mark() for _ in range(self.random.choice((1, 2, 8))))
        if kind == "Probe":
            return Probe(marks, self.number())
        if kind == "Sync":
            return Sync(marks, self.number(), (), self.columns() if self.random.random() < 0.5 else None)
        if kind == "Relay":
            return Relay(marks[0].node, marks[0].address or "x")
        if kind == "Order":
            return Order(self.number(), self.number(), self.random.choice((0, 1, 1 << 31)), self.number())
        if kind == "Layout":
            return Layout()
        return Push(tuple(Blob(mark, mutated(self.random, self.report), self.number()) for mark in marks))

    def columns(self) -> Columns:
        """Of the roster that the agent has told, with as many nodes or others, or of any."""
        known = self.roster if self.random.random() < 0.9 else self.number()
        count = self.random.choice((0, 1, 2, self.known, self.known))
        version, beat, held = (tuple(self.number() for _ in range(count)) for _ in "vbh")
        at = tuple(self.random.choice((0, 1, 2, (1 << 32) - 1)) for _ in range(count))
        return Columns(known, version, beat, held, at if self.random.random() < 0.5 or not count else None)

    def mark(self) -> Mark:
        node = self.random.choice(("host-0", self.member.node, "host-8", f"host-{self.random.random()}"))
        address = self.random.choice(("", "10.77.0.9:7641", "unix:/tmp/x", "[::1]:1", "host:99999"))
        return Mark(node, address, self.random.choice((1, 2, self.number())), *(self.number() for _ in "vbh"))

    def number(self) -> int:
        """Of the wire, the largest that it can carry among them."""
        return self.random.choice((0, 1, 2, 7, 1 << 31, (1 << 62) - 1, 1 << 63, (1 << 64) - 1))

    async def send(self, kind: str, data: bytes) -> pb.Sealed | None:
        call: Any = self.channel.unary_unary(
            f"/scoutd.v1.Peer/{kind}", response_deserializer=pb.Sealed.FromString
        )
        try:
            reply: pb.Sealed = await call(data, timeout=20)
        except grpc.aio.AioRpcError as error:
            self.answers[error.code().name] += 1
            return None
        self.answers["OK"] += 1
        return reply


def report_of(node: str) -> bytes:
    job = Job(4)
    ranks: tuple[RankReport, ...] = (job.ranks[2], job.ranks[3])
    return encode_report(NodeReport(JOB, 1, node, 1, 1, 4, ranks))


def requests(node: str) -> list[Request]:
    """One of each kind, as a peer with two healthy ranks would send them."""
    mark = Mark(node, "10.77.0.9:7641", 1, 3, 9, 3)
    other = Mark("host-8", "10.77.0.8:7641", 2, 0, 4, 0)
    return [
        Probe((mark, other), 0),
        Sync((mark, other)),
        Push((Blob(mark, report_of(node), 1000),)),
        Relay("host-8", "10.77.0.8:7641"),
        Order(7, 0, 1, 60_000_000_000),
        Layout(),
    ]


def throw(target: Prey, members: list[Membership], count: int) -> Counter[str]:
    """The answers to ``count`` mutated requests, shared among the members."""

    async def attack() -> Counter[str]:
        options = (("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0))
        async with grpc.aio.insecure_channel(target.target, options=options) as channel:
            attackers = [Attacker(Random(f"{SEED} {m.node}"), channel, m) for m in members]
            for each in attackers:
                await each.attack(count // len(members))
            return sum((each.answers for each in attackers), Counter())

    return asyncio.run(attack())


def survived(target: Prey, before_mb: float) -> None:
    """It answers, sees its ranks, has not grown, and blames none of them."""
    text = f"SCOUTD_FUZZ_SEED={SEED}"
    assert target.alive(), text
    until(lambda: len(target.job().get("ranks", [])) == len(HERE), f"its ranks in the status; {text}", 20.0)
    grown = target.rss_mb() - before_mb
    assert grown < GROWTH_MB, f"{grown:.0f} MB more; {text}"
    blamed = [v for v in target.verdicts() if set(named(v)) & set(HERE)]
    assert not blamed, f"{blamed}; {text}"


def attack_with_messages(target: Prey, count: int) -> None:
    throw(target, [target.stranger()], 200)
    before = target.rss_mb()
    errors = target.counted("scoutd_errors_total")
    known = target.job()["members"]
    wrong = throw(target, [target.stranger(key=bytes(32))], count // 4)
    assert not wrong["OK"], f"{wrong}; SCOUTD_FUZZ_SEED={SEED}"
    assert target.job()["members"] == known or len(target.job()["members"]) == len(known)
    right = throw(target, [target.stranger(f"host-{n}") for n in range(6, 10)], count - count // 4)
    assert right["OK"] > count // 20, right
    assert right["INVALID_ARGUMENT"] > count // 20, right
    assert not right["UNKNOWN"], f"an error of ours; {right}; SCOUTD_FUZZ_SEED={SEED}"
    survived(target, before)
    assert target.counted("scoutd_errors_total") == errors, f"SCOUTD_FUZZ_SEED={SEED}"
    assert target.counted("scoutd_peer_refused_total") > count // 4


def test_mutated_messages(target: Prey) -> None:
    attack_with_messages(target, 2_000)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_mutated_messages_at_length(target: Prey) -> None:
    attack_with_messages(target, 100_000)


class Litter:
    """Files of ranks that do not exist, beside those that do: garbage from the start, garbage over what was
    there, records whose checksum is right and whose content is garbage."""

    def __init__(self, target: Prey, random: Random) -> None:
        self.random = random
        self.target = target
        self.folder = target.ranks.folder
        self.freshen()

    def freshen(self) -> None:
        """What is mutated says what healthy ranks would say now."""
        self.sound = {rank: self._sound(rank) for rank in OTHERS}

    def _sound(self, rank: int) -> bytes:
        now = time.monotonic_ns()
        draft = self.folder.parent / "draft"
        ranks = self.target.ranks
        writer = Writer(draft, ranks.header._replace(rank=rank, local_rank=rank, attached_ns=now))
        ranks.say(writer, rank, 1)
        for section in (shm.COUNTERS, shm.HISTORY, shm.RECORDER, shm.TOPOLOGY):
            writer.put(section, EXAMPLES[section.name])
        call = CALL._replace(state=shm.CallState.DONE, waiting=0, entered_ns=now, left_ns=now)
        writer.put(shm.CALLS, call)
        data = bytes(writer.view)
        writer.close()
        draft.unlink()
        return data

    def drop(self, rank: int, sealed: bool) -> None:
        data = self._garbage_records(rank) if sealed else self._garbage_bytes(rank)
        file = self.folder / f"rank-{rank}"
        if self.random.random() < 0.5:
            file.unlink(missing_ok=True)
        file.write_bytes(data)

    def _garbage_bytes(self, rank: int) -> bytes:
        """Mutations anywhere in the file, or in the small part that is written most."""
        sound = self.sound[rank]
        start = self.random.choice((0, shm.HEADER.end))
        end = self.random.choice((shm.PENDING.offset, len(sound)))
        how = ANY_LENGTH if self.random.random() < 0.2 else SAME_LENGTH
        return sound[:start] + mutated(self.random, sound[start:end], how) + sound[end:]

    def _garbage_records(self, rank: int) -> bytes:
        data = bytearray(self.sound[rank])
        for _ in range(8):
            section = self.random.choice(shm.SECTIONS[1:])
            payload = mutated(self.random, section.codec.pack(EXAMPLES[section.name]), SAME_LENGTH)
            sequence = 2 * self.random.randrange(1, 1 << 20)
            record = shm.SEQUENCE.pack(sequence) + shm.seal(payload, sequence)
            at = section.position(self.random.randrange(section.slots), sequence)
            data[at : at + len(record)] = record
        return bytes(data)

    def clear(self) -> None:
        for rank in OTHERS:
            (self.folder / f"rank-{rank}").unlink(missing_ok=True)


def attack_with_files(target: Prey, count: int) -> None:
    litter = Litter(target, Random(SEED))
    before = target.rss_mb()
    errors = target.counted("scoutd_errors_total")
    for start in range(0, count, len(OTHERS)):
        litter.freshen()
        for rank in OTHERS[: count - start]:
            litter.drop(rank, sealed=start >= count // 2)
        wait_for_a_round(target)
        if start < count // 2:
            wrong = [v for v in target.verdicts() if v["implicated"]]
            assert not wrong, f"{wrong}; SCOUTD_FUZZ_SEED={SEED}"
    litter.clear()
    survived(target, before)
    assert target.counted("scoutd_errors_total") == errors, f"SCOUTD_FUZZ_SEED={SEED}"


def wait_for_a_round(target: Prey) -> None:
    rounds = target.counted("scoutd_observation_seconds_count")
    until(lambda: target.counted("scoutd_observation_seconds_count") > rounds + 1, "two rounds", 20.0)


def test_mutated_files(target: Prey) -> None:
    attack_with_files(target, 200)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_mutated_files_at_length(target: Prey) -> None:
    attack_with_files(target, 10_000)
