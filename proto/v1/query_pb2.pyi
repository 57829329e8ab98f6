from scoutd.proto.v1 import verdict_pb2 as _verdict_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("node", "version", "pid", "started_at", "stall_timeout_s", "jobs", "unobserved", "warnings")
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    STALL_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    UNOBSERVED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    node: str
    version: str
    pid: int
    started_at: str
    stall_timeout_s: float
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    unobserved: _containers.RepeatedCompositeFieldContainer[Unobserved]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., started_at: _Optional[str] = ..., stall_timeout_s: _Optional[float] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., unobserved: _Optional[_Iterable[_Union[Unobserved, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job", "generation", "world_size", "run", "ranks", "open", "ended", "suppressed", "members", "replay")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    world_size: int
    run: str
    ranks: _containers.RepeatedCompositeFieldContainer[RankStatus]
    open: _containers.RepeatedCompositeFieldContainer[_verdict_pb2.Verdict]
    ended: bool
    suppressed: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    replay: ReplayStatus
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., world_size: _Optional[int] = ..., run: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankStatus, _Mapping]]] = ..., open: _Optional[_Iterable[_Union[_verdict_pb2.Verdict, _Mapping]]] = ..., ended: bool = ..., suppressed: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., replay: _Optional[_Union[ReplayStatus, _Mapping]] = ...) -> None: ...

class ReplayStatus(_message.Message):
    __slots__ = ("every", "variants", "faults", "replays", "share", "agreed", "deviating", "undecided", "recipes", "request", "waiting")
    EVERY_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    DEVIATING_FIELD_NUMBER: _ClassVar[int]
    UNDECIDED_FIELD_NUMBER: _ClassVar[int]
    RECIPES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    every: int
    variants: int
    faults: bool
    replays: int
    share: float
    agreed: int
    deviating: int
    undecided: int
    recipes: _containers.RepeatedCompositeFieldContainer[RecipeStatus]
    request: int
    waiting: int
    def __init__(self, every: _Optional[int] = ..., variants: _Optional[int] = ..., faults: bool = ..., replays: _Optional[int] = ..., share: _Optional[float] = ..., agreed: _Optional[int] = ..., deviating: _Optional[int] = ..., undecided: _Optional[int] = ..., recipes: _Optional[_Iterable[_Union[RecipeStatus, _Mapping]]] = ..., request: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class RecipeStatus(_message.Message):
    __slots__ = ("recipe", "kind", "mode", "name", "state", "reason", "peers", "replays", "cost_s", "aside", "disabled")
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    COST_S_FIELD_NUMBER: _ClassVar[int]
    ASIDE_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    recipe: str
    kind: str
    mode: str
    name: str
    state: str
    reason: str
    peers: int
    replays: int
    cost_s: float
    aside: str
    disabled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, recipe: _Optional[str] = ..., kind: _Optional[str] = ..., mode: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., peers: _Optional[int] = ..., replays: _Optional[int] = ..., cost_s: _Optional[float] = ..., aside: _Optional[str] = ..., disabled: _Optional[_Iterable[int]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("node", "address", "state", "incarnation", "heard_ago_s", "me")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HEARD_AGO_S_FIELD_NUMBER: _ClassVar[int]
    ME_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    state: str
    incarnation: int
    heard_ago_s: float
    me: bool
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., incarnation: _Optional[int] = ..., heard_ago_s: _Optional[float] = ..., me: bool = ...) -> None: ...

class RankStatus(_message.Message):
    __slots__ = ("rank", "pid", "local_rank", "device", "process", "step", "phase", "operation", "silent_s", "heartbeat_age_s", "pending", "shim_disabled", "node")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    SHIM_DISABLED_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    local_rank: int
    device: str
    process: str
    step: int
    phase: _verdict_pb2.Phase
    operation: str
    silent_s: float
    heartbeat_age_s: float
    pending: str
    shim_disabled: str
    node: str
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., local_rank: _Optional[int] = ..., device: _Optional[str] = ..., process: _Optional[str] = ..., step: _Optional[int] = ..., phase: _Optional[_Union[_verdict_pb2.Phase, str]] = ..., operation: _Optional[str] = ..., silent_s: _Optional[float] = ..., heartbeat_age_s: _Optional[float] = ..., pending: _Optional[str] = ..., shim_disabled: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class Unobserved(_message.Message):
    __slots__ = ("rank", "pid", "reason")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    reason: str
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ListVerdictsRequest(_message.Message):
    __slots__ = ("job", "suppressed", "id")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    job: str
    suppressed: bool
    id: str
    def __init__(self, job: _Optional[str] = ..., suppressed: bool = ..., id: _Optional[str] = ...) -> None: ...

class ListVerdictsResponse(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[_verdict_pb2.Verdict]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[_verdict_pb2.Verdict, _Mapping]]] = ...) -> None: ...

class WatchVerdictsRequest(_message.Message):
    __slots__ = ("job", "run")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    job: str
    run: str
    def __init__(self, job: _Optional[str] = ..., run: _Optional[str] = ...) -> None: ...

class GetTopologyRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class GetTopologyResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobTopology]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobTopology, _Mapping]]] = ...) -> None: ...

class JobTopology(_message.Message):
    __slots__ = ("job", "generation", "world_size", "ranks", "groups", "warnings", "meshes", "peer_groups", "missing")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MESHES_FIELD_NUMBER: _ClassVar[int]
    PEER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    world_size: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankPlace]
    groups: _containers.RepeatedCompositeFieldContainer[ProcessGroup]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    meshes: _containers.RepeatedCompositeFieldContainer[Mesh]
    peer_groups: _containers.RepeatedCompositeFieldContainer[PeerGroup]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., world_size: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankPlace, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[ProcessGroup, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., meshes: _Optional[_Iterable[_Union[Mesh, _Mapping]]] = ..., peer_groups: _Optional[_Iterable[_Union[PeerGroup, _Mapping]]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class Mesh(_message.Message):
    __slots__ = ("names", "shape")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class PeerGroup(_message.Message):
    __slots__ = ("kind", "ranks")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class RankPlace(_message.Message):
    __slots__ = ("rank", "node", "local_rank", "device", "coordinates")
    class CoordinatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RANK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    node: str
    local_rank: int
    device: str
    coordinates: _containers.ScalarMap[str, int]
    def __init__(self, rank: _Optional[int] = ..., node: _Optional[str] = ..., local_rank: _Optional[int] = ..., device: _Optional[str] = ..., coordinates: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ProcessGroup(_message.Message):
    __slots__ = ("id", "name", "description", "backend", "ranks")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    description: str
    backend: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., backend: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class GetBundleRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetBundleResponse(_message.Message):
    __slots__ = ("id", "archive")
    ID_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    id: str
    archive: bytes
    def __init__(self, id: _Optional[str] = ..., archive: _Optional[bytes] = ...) -> None: ...

class GetLimitsRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class GetLimitsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobLimits]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobLimits, _Mapping]]] = ...) -> None: ...

class JobLimits(_message.Message):
    __slots__ = ("job", "generation", "suppressed", "confirmed", "limits")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    suppressed: int
    confirmed: int
    limits: _containers.RepeatedCompositeFieldContainer[PhaseLimit]
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., suppressed: _Optional[int] = ..., confirmed: _Optional[int] = ..., limits: _Optional[_Iterable[_Union[PhaseLimit, _Mapping]]] = ...) -> None: ...

class PhaseLimit(_message.Message):
    __slots__ = ("setting", "phases", "limit_s", "longest_s", "ended", "suggested_s")
    SETTING_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    LONGEST_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_S_FIELD_NUMBER: _ClassVar[int]
    setting: str
    phases: _containers.RepeatedScalarFieldContainer[str]
    limit_s: float
    longest_s: float
    ended: int
    suggested_s: float
    def __init__(self, setting: _Optional[str] = ..., phases: _Optional[_Iterable[str]] = ..., limit_s: _Optional[float] = ..., longest_s: _Optional[float] = ..., ended: _Optional[int] = ..., suggested_s: _Optional[float] = ...) -> None: ...

class RequestReplayRequest(_message.Message):
    __slots__ = ("job", "recipe", "variants", "expires_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_S_FIELD_NUMBER: _ClassVar[int]
    job: str
    recipe: str
    variants: int
    expires_s: float
    def __init__(self, job: _Optional[str] = ..., recipe: _Optional[str] = ..., variants: _Optional[int] = ..., expires_s: _Optional[float] = ...) -> None: ...

class RequestReplayResponse(_message.Message):
    __slots__ = ("job", "request", "ranks", "refused", "elsewhere", "recipes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    RECIPES_FIELD_NUMBER: _ClassVar[int]
    job: str
    request: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedScalarFieldContainer[int]
    elsewhere: _containers.RepeatedScalarFieldContainer[str]
    recipes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[str] = ..., request: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[int]] = ..., elsewhere: _Optional[_Iterable[str]] = ..., recipes: _Optional[_Iterable[str]] = ...) -> None: ...

class ConcludeRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class ConcludeResponse(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[_verdict_pb2.Verdict]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[_verdict_pb2.Verdict, _Mapping]]] = ...) -> None: ...
