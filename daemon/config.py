"""What can be configured: every key with its section, unit, default and accepted values.

``Config`` is one frozen value, made once from three sources, later ones winning: TOML file < environment <
flags (``configsource`` reads them). A key has one name in each: ``timeout_s`` in ``[stall]`` of the file is
``SCOUTD_STALL_TIMEOUT`` in the environment. The environment's name is ``SCOUTD_<SECTION>_<KEY>`` without the
unit; ``root`` alone differs (``SCOUTD_ROOT``), because trainers read it too.

Defaults that depend on the place (host name, state directory) are empty here and resolved by ``lifecycle``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from scoutd.agent.evidence import Phase
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.proto import shm

AUTO: Final = "auto"
LOOPBACK: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7641
DEFAULT_HTTP_PORT: Final = 9641
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("auto", "json", "text")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a key accepts. Numbers lie in [low, high]; texts in ``choices``, unless that is empty."""

    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    env: str = ""
    """Name in the environment where it breaks the rule of the module's docstring."""

    def accepted(self, kind: str) -> str:
        """The accepted values in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if kind == "int":
            return f"a whole number from {self.low:g} to {self.high:g}"
        if kind == "float":
            return f"a number from {self.low:g} to {self.high:g}"
        return "a text"


def _key(default: Any, **rule: Any) -> Any:
    return field(default=default, metadata={"rule": Rule(**rule)})


def _seconds(default: float, low: float = 0.1, high: float = 86400.0) -> Any:
    return _key(default, low=low, high=high)


@dataclass(frozen=True, slots=True)
class AgentSection:
    """``node``: its name in verdicts, empty for the host name. ``port``, ``http_port``: 0 picks a free one.
    ``bind``: "auto" keeps both ports on loopback and opens a listener for peers alone, at the advertised
    address, once a job has ranks on other nodes; any other address is that of both ports, peers included.
    ``share``: observe one block of the ranks of this machine, "2/4"; empty for all.
    ``socket``: path of the Unix socket, empty for the one in the runtime directory. ``state_dir``: empty for
    /var/lib/scoutd (root) or the user's state directory; a private agent keeps state only where it is set."""

    node: str = _key("")
    bind: str = _key(AUTO)
    port: int = _key(DEFAULT_PORT, low=0, high=65535)
    http_port: int = _key(DEFAULT_HTTP_PORT, low=0, high=65535)
    share: str = _key("")
    socket: str = _key("")
    state_dir: str = _key("")
    log_level: str = _key("info", choices=LOG_LEVELS)
    log_format: str = _key("auto", choices=LOG_FORMATS)


@dataclass(frozen=True, slots=True)
class StallSection:
    """When silence is an alarm; see ``scoutd.agent.settings.Settings``, which these become. A limit of a
    phase below ``timeout_s`` is raised to it; ``first_step_s`` 0 means no limit of its own."""

    timeout_s: float = _seconds(30.0)
    busy_factor: float = _key(4.0, low=1.0, high=1000.0)
    busy_cpu_ratio: float = _key(0.25, low=0.0, high=1024.0)
    busy_io_bytes_per_s: float = _key(4096.0, low=0.0, high=1e12)
    init_s: float = _seconds(300.0)
    first_step_s: float = _seconds(0.0, low=0.0)
    checkpoint_s: float = _seconds(600.0)
    compile_s: float = _seconds(600.0)
    eval_s: float = _seconds(600.0)
    exit_s: float = _seconds(60.0)
    heartbeat_s: float = _seconds(5.0)
    settle_s: float = _seconds(1.0, low=0.0, high=60.0)


@dataclass(frozen=True, slots=True)
class ObserveSection:
    """``interval_s``: between two looks at shared memory; at most 1, because the core takes 2 s without a
    look for a pause of the agent itself. ``linger_s``: how long a node agent keeps the files
    of a job whose ranks are all gone. ``root``: where the shims write."""

    interval_s: float = _seconds(0.25, low=0.02, high=1.0)
    linger_s: float = _seconds(60.0, low=0.0)
    root: str = _key(shm.ROOT, env="SCOUTD_ROOT")


@dataclass(frozen=True, slots=True)
class PeersSection:
    """How agents of other nodes are found, and this one by them. ``advertise``: host or host:port that others
    reach, empty for the address of ``interface``, else that by which this host speaks to others.
    ``addresses``: agents to join through, comma-separated, ``dns``: a name that stands for many; both beside
    those that the trainer's store tells. ``key_file``: a secret of at least 16 bytes, equal on all nodes, for
    jobs whose store told no key. ``tls_*``: PEM files for mutual TLS, all three or none; ``tls_name``: what
    peers' certificates are issued for, where that is not their address."""

    advertise: str = _key("", env="SCOUTD_ADVERTISE")
    interface: str = _key("")
    addresses: str = _key("")
    dns: str = _key("")
    key_file: str = _key("")
    tls_cert: str = _key("")
    tls_key: str = _key("")
    tls_ca: str = _key("")
    tls_name: str = _key("")


@dataclass(frozen=True, slots=True)
class ExchangeSection:
    """The pace of the exchange; meaning and formulas stand at ``scoutd.agent.settings.ExchangeSettings``,
    which these become."""

    probe_interval_s: float = _seconds(1.0, high=60.0)
    piggyback: int = _key(4, low=0, high=256)
    sync_interval_s: float = _seconds(0.15, low=0.02, high=60.0)
    fanout: int = _key(2, low=1, high=16)
    partners: int = _key(8, low=1, high=64)
    alarm_hold_s: float = _seconds(5.0, high=600.0)
    k_sigma: float = _key(4.0, low=1.0, high=100.0)
    least_timeout_s: float = _seconds(0.3, low=0.01, high=60.0)
    most_timeout_s: float = _seconds(2.0, low=0.01, high=60.0)
    relays: int = _key(3, low=0, high=32)
    quiet_rounds: int = _key(3, low=1, high=100)
    in_flight: int = _key(16, low=1, high=1024)


@dataclass(frozen=True, slots=True)
class HooksSection:
    """``on_verdict``: a shell command that gets each change of a verdict as JSON on its standard input; empty
    for none. It is killed after ``timeout_s``."""

    on_verdict: str = _key("")
    timeout_s: float = _seconds(10.0, high=600.0)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, valid by construction through ``configsource.load``."""

    agent: AgentSection = field(default_factory=AgentSection)
    stall: StallSection = field(default_factory=StallSection)
    observe: ObserveSection = field(default_factory=ObserveSection)
    hooks: HooksSection = field(default_factory=HooksSection)
    peers: PeersSection = field(default_factory=PeersSection)
    exchange: ExchangeSection = field(default_factory=ExchangeSection)

    @property
    def private_bind(self) -> str:
        """The address of both ports."""
        return LOOPBACK if self.agent.bind == AUTO else self.agent.bind

    def exchange_settings(self) -> ExchangeSettings:
        """The knobs of the exchange between agents."""
        names = (each.name for each in fields(ExchangeSection))
        return ExchangeSettings(**{name: getattr(self.exchange, name) for name in names})

    def settings(self) -> Settings:
        """The core's knobs."""
        stall = self.stall
        return Settings(
            stall_timeout_s=stall.timeout_s,
            phase_limits_s={
                Phase.INIT: stall.init_s,
                Phase.CHECKPOINT: stall.checkpoint_s,
                Phase.COMPILE: stall.compile_s,
                Phase.EVAL: stall.eval_s,
                Phase.EXITING: stall.exit_s,
            },
            first_step_limit_s=stall.first_step_s,
            busy_factor=stall.busy_factor,
            busy_cpu_ratio=stall.busy_cpu_ratio,
            busy_io_bytes_per_s=stall.busy_io_bytes_per_s,
            heartbeat_limit_s=stall.heartbeat_s,
            settle_s=stall.settle_s,
        )


SECTIONS: Final[dict[str, type]] = {
    "agent": AgentSection,
    "stall": StallSection,
    "observe": ObserveSection,
    "hooks": HooksSection,
    "peers": PeersSection,
    "exchange": ExchangeSection,
}


@dataclass(frozen=True, slots=True)
class Key:
    """One configurable key. ``kind`` is "int", "float" or "str"."""

    section: str
    name: str
    kind: str
    default: Any
    rule: Rule

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def bare_name(self) -> str:
        """The name without the unit of seconds; a rate keeps its unit."""
        return self.name if self.name.endswith("_per_s") else self.name.removesuffix("_s")

    @property
    def env(self) -> str:
        return self.rule.env or f"SCOUTD_{self.section}_{self.bare_name}".upper()

    @property
    def accepted(self) -> str:
        return self.rule.accepted(self.kind)


def keys() -> Iterator[Key]:
    """Every key, in the order of the file."""
    for section, cls in SECTIONS.items():
        each: Field[Any]
        for each in fields(cls):
            yield Key(section, each.name, str(each.type), each.default, each.metadata["rule"])


BY_PATH: Final[dict[str, Key]] = {key.path: key for key in keys()}
