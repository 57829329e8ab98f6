"""One attachment of the shim to this process: builds the parts, and takes them out again.

Attach order: file (allocated and locked, or nothing happens at all), first coordinate, interceptors and
hooks, publisher thread, identity. Every installation is guarded by itself: a part that cannot be installed
in this torch is named in the heartbeat and the rest works. Detach runs the other way round.

A forked child inherits hooks whose file is its parent's. The switches of all parts go off in the child
(``os.register_at_fork``), so nothing is ever written there; if the child calls ``init_process_group``
itself, what it inherited is undone and it gets a session of its own.

At a clean exit without a live observer the file is removed; after an exception, or while an agent looks,
it stays: what was written last is evidence, and the agent cleans up.
"""

from __future__ import annotations

import atexit
import itertools
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from scoutd.proto import shm
from scoutd.shim import (
    boundaries,
    coalescing,
    collectives,
    creation,
    functional,
    starting,
    store,
    topology,
    works,
)
from scoutd.shim.arming import ImportWatch
from scoutd.shim.calls import Calls
from scoutd.shim.coordinates import Coordinates, encode
from scoutd.shim.discovery import Discovery
from scoutd.shim.groups import Groups
from scoutd.shim.guard import Guard
from scoutd.shim.identity import Agreement, Identity, launcher_id
from scoutd.shim.intercept import Undo
from scoutd.shim.notes import DeathNotes
from scoutd.shim.publisher import Publisher
from scoutd.shim.rendezvous import Rendezvous
from scoutd.shim.replay.cadence import InputMode
from scoutd.shim.replay.replays import Replays
from scoutd.shim.shmfile import ShmFile, root_folder, start_ticks

FAULTS_SWITCH: Final = "SCOUTD_FAULTS"
"""Only with it is the fault kit so much as imported."""


class Session:
    """Everything that is attached. Raises OSError from the constructor if there can be no file."""

    def __init__(
        self, coordinates: Mapping[str, int] | None, every: int, variants: int, mode: InputMode
    ) -> None:
        self.pid: Final = os.getpid()
        self.rank: Final = dist.get_rank()
        self.world_size: Final = dist.get_world_size()
        self.guard: Final = Guard()
        self.undo: Final = Undo()
        self.watch: Final = ImportWatch()
        self.file: Final = starting.take() or ShmFile(root_folder())
        self.coordinates: Final = Coordinates(self.file)
        self.groups: Final = Groups(self.file)
        self.calls: Final = Calls(self.file)
        self.works: Final = works.Works(self.calls, self.coordinates)
        self.discovery: Final = Discovery(self.coordinates, self.guard, self.undo, self.found)
        self.publisher: Final = Publisher(
            self.file, self.coordinates, self.groups, self.calls, self.works, self.guard
        )
        self.notes: Final = DeathNotes(self.file, self.guard, self.publisher.last_look)
        job_store = _default_store()
        self.agreement: Final = Agreement(job_store, self.rank, self.file.user_folder, self.identify)
        self.rendezvous: Final = Rendezvous(
            job_store, self.rank, self.world_size, lambda: self.file.observer_address, self.tell
        )
        self.replays: Final = Replays(
            self.file,
            self.coordinates,
            self.guard,
            self.undo,
            job_store,
            self.rank,
            every,
            variants,
            mode,
        )
        self._given: Final = coordinates
        self._identity = Identity("", 0)
        self._attached_ns: Final = time.monotonic_ns()
        self._exited = False
        self.left = False

    def begin(self, model: torch.nn.Module | None) -> None:
        """All parts are in; those that failed are counted and off."""
        self._write_header()
        writer = self.coordinates.writer
        self.coordinates.publish(writer, shm.Phase.INIT, encode("after init_process_group"), 0)
        self.guard.run("groups", self.groups.sweep, None)
        for name, install in self._installations():
            self.guard.run(name, install, None)
        self.guard.run("topology", lambda: self.describe(model), None)
        if os.environ.get(FAULTS_SWITCH) == "1":
            self.guard.run("faults", _arm_faults, None)
        if model is not None:
            self.guard.run("modules", lambda: self.discovery.watch(model), None)
        self.guard.run("publisher", self.publisher.start, None)
        self.guard.run("identity", self.agreement.begin, None)

    def _installations(self) -> list[tuple[str, Callable[[], None]]]:
        bounds = boundaries.Boundaries(self.coordinates, self.guard, self.undo, self.watch)
        publication = collectives.Publication(self.groups, self.calls, self.works, self.coordinates)
        waits = store.StoreWaits(self.calls, self.coordinates)
        return [
            ("notes", lambda: self.notes.install(self.undo)),
            ("collectives", lambda: collectives.install(publication, self.guard, self.undo)),
            ("functional", lambda: functional.install(publication, self.guard, self.undo, self.watch)),
            ("coalescing", lambda: coalescing.install(publication, self.guard, self.undo)),
            ("creation", lambda: creation.install(publication, self.guard, self.undo)),
            ("works", lambda: works.install(self.works, self.guard, self.undo)),
            ("store", lambda: store.install(waits, self.coordinates, self.guard, self.undo)),
            ("optimizer", lambda: boundaries.install_optimizers(bounds, self.replays.after_step)),
            ("input", lambda: boundaries.install_input(bounds)),
            ("checkpoint", lambda: boundaries.install_checkpoints(bounds)),
            ("compile", lambda: boundaries.install_compile(bounds)),
            ("backward", lambda: boundaries.install_backward(bounds, self.discovery.scan)),
            ("groups", lambda: boundaries.install_groups(bounds, self.let_go)),
            ("modules", lambda: self.discovery.install()),
        ]

    def identify(self, identity: Identity) -> None:
        """The header names the job, and the file lies where the agent looks for it."""
        self._identity = identity
        self._write_header()
        self.file.settle(identity.job, identity.generation, self.rank)
        self.guard.run("rendezvous", lambda: self.rendezvous.begin(identity), None)
        self.guard.run("replay", lambda: self.replays.channel.begin(identity.generation), None)

    def let_go(self) -> None:
        """The default group is about to be destroyed: who still held the store would keep its server alive,
        and a next ``init_process_group`` would find the keys of this one."""
        self.left = True
        for part in (self.agreement, self.rendezvous, self.replays.channel):
            self.guard.run("store", part.let_go, None)

    def tell(self, found: shm.Discovery) -> None:
        """The agent can read how to find those of other nodes."""
        self.file.publish(shm.DISCOVERY, 0, found)

    def found(self, root: torch.nn.Module) -> None:
        """A root is watched: the layout is described, and what can be replayed of it is looked for."""
        self.guard.run("replay", lambda: self.replays.watch(root), None)
        self.describe(root)

    def describe(self, root: torch.nn.Module | None) -> None:
        """TOPOLOGY says what is known of the parallel layout."""
        text = topology.describe(root, self.rank, self._given)
        self.file.publish(shm.TOPOLOGY, 0, shm.Topology(text))

    def end(self, remove: bool) -> None:
        """Nothing of the shim is left in this process; with ``remove`` the file is gone too."""
        self.publisher.stop()
        self.agreement.stop()
        self.rendezvous.stop()
        self.replays.channel.stop()
        self.guard.silence()
        self.watch.forget()
        self.undo.run()
        if remove:
            self.file.remove()
        self.file.close()

    def abandon(self) -> None:
        """In a forked child: the hooks are gone, the parent's file is untouched."""
        self.guard.silence()
        self.watch.forget()
        self.replays.channel.orphan()
        self.undo.run()
        self.file.close()

    def exit(self) -> None:
        """The interpreter is leaving. The threads are joined: a daemon thread that wakes up inside C++
        while the interpreter is torn down would abort the process."""
        if self._exited:
            return
        self._exited = True
        if self.guard.part("exit").on and not self.notes.fatal:
            # After a fatal exception the last coordinate stays: it says where the exception came from.
            self.coordinates.enter(shm.Phase.EXITING, encode("interpreter exit"))
        self.publisher.stop()
        self.agreement.stop()
        self.rendezvous.stop()
        self.replays.channel.stop()
        if not self.notes.fatal and not self.file.observed and not os.environ.get("SCOUTD_RUN"):
            # Under ``scoutd run`` somebody is about to look, and removes it: who left early is evidence.
            self.file.remove()
        elif not self.agreement.known:
            self.guard.run("identity", self.agreement.conclude, None)

    def _write_header(self) -> None:
        environment = os.environ
        record = shm.Header(
            pid=self.pid,
            start_ticks=start_ticks(),
            attached_ns=self._attached_ns,
            generation=self._identity.generation,
            uid=os.getuid(),
            rank=self.rank,
            world_size=self.world_size,
            local_rank=_number(environment.get("LOCAL_RANK"), -1),
            local_world_size=_number(environment.get("LOCAL_WORLD_SIZE"), 0),
            job=self._identity.job,
            run=environment.get("SCOUTD_RUN", ""),
            launcher_id=launcher_id(),
            node=socket.gethostname(),
            device=_device(),
            backend=str(dist.get_backend()),
            python=platform.python_version(),
            torch=str(torch.__version__),
        )
        self.file.publish(shm.HEADER, 0, record)


def _arm_faults() -> None:
    from scoutd.shim import faults

    faults.from_environment()


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() else otherwise


def _given(argument: int | None, variable: str, otherwise: int) -> int:
    """The argument, else what the environment says."""
    return argument if argument is not None else _number(os.environ.get(variable), otherwise)


def _mode(argument: str | None) -> InputMode:
    """The argument, else what the environment says, where that is a mode. Raises ValueError for an argument
    that is none."""
    if argument is not None:
        return InputMode(argument)
    told = os.environ.get("SCOUTD_REPLAY_MODE", "")
    return next((mode for mode in InputMode if mode.value == told), InputMode.SEEDED)


def _device() -> str:
    """The accelerator in use, "cpu" where none was initialised (asking must not initialise one)."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"


def _default_store() -> c10d.Store | None:
    """The trainer's store; a process that attaches again finds nothing of the last time in it."""
    number = next(_attachments)
    try:
        found = c10d._get_default_store()
    except (RuntimeError, ValueError):
        return None
    return found if number == 1 else c10d.PrefixStore(f"scoutd-{number}/", found)


_attachments: Final = itertools.count(1)
_session: Session | None = None
_inherited: Session | None = None
_registered = False


def attach(
    model: torch.nn.Module | None,
    optimizer: torch.optim.Optimizer | None,
    coordinates: Mapping[str, int] | None,
    replay_every: int | None = None,
    replay_variants: int | None = None,
    replay_mode: str | None = None,
) -> bool:
    """See ``scoutd.shim.attach``. Raises what refuses the attachment."""
    global _session, _inherited
    if c10d.GroupMember.WORLD is None:
        raise RuntimeError("attach() comes after init_process_group()")
    place = dist.get_rank(), dist.get_world_size()
    if _session is not None and (_session.left or (_session.rank, _session.world_size) != place):
        detach()
    if _session is not None:
        current = _session
        if model is not None:
            current.guard.run("modules", lambda: current.discovery.watch(model), None)
        return True
    if _inherited is not None:
        _inherited.abandon()
        _inherited = None
    _register_once()
    every = _given(replay_every, "SCOUTD_REPLAY_EVERY", 0)
    variants = _given(replay_variants, "SCOUTD_REPLAY_VARIANTS", 1)
    session = Session(coordinates, every, variants, _mode(replay_mode))
    _session = session
    session.begin(model)
    session.guard.run("exit", _register_child_exit, None)
    return True


def detach() -> None:
    """See ``scoutd.shim.detach``."""
    global _session
    session, _session = _session, None
    if session is not None and session.pid == os.getpid():
        session.end(remove=True)


def status() -> dict[str, object]:
    """What ``scoutd.shim.status`` adds to."""
    if _session is None:
        return {"attached": False}
    guard, path = _session.guard, str(_session.file.path)
    return {"attached": True, "file": path, "errors": guard.reasons, "disabled": guard.disabled}


def _register_once() -> None:
    global _registered
    if not _registered:
        _registered = True
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_at_exit)


def _register_child_exit() -> None:
    """Children of multiprocessing swallow their exception and may leave by ``os._exit``: neither hook nor
    atexit hears of it, but their finalizers run while the exception is still in flight."""
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        util.Finalize(None, _at_child_exit, exitpriority=1000)


def _at_child_exit() -> None:
    if _session is not None:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit):  # torch's spawn has caught the real one and exits with 1
            error = error.__context__ if error.code else None
        if error is not None:
            _session.notes.record(error)
    _at_exit()


def _after_fork() -> None:
    global _session, _inherited
    if _session is not None:
        _session.guard.silence()
        _inherited, _session = _session, None


def _at_exit() -> None:
    if _session is not None and _session.pid == os.getpid():
        _session.guard.run("exit", _session.exit, None)
