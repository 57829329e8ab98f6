from scoutd.proto.v1 import verdict_pb2 as _verdict_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProcessStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROCESS_STATUS_UNSPECIFIED: _ClassVar[ProcessStatus]
    PROCESS_RUNNING: _ClassVar[ProcessStatus]
    PROCESS_STOPPED_STATE: _ClassVar[ProcessStatus]
    PROCESS_GONE: _ClassVar[ProcessStatus]
    PROCESS_UNKNOWN: _ClassVar[ProcessStatus]

class CallState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALL_STATE_UNSPECIFIED: _ClassVar[CallState]
    CALL_PENDING: _ClassVar[CallState]
    CALL_DONE: _ClassVar[CallState]
    CALL_FAILED: _ClassVar[CallState]

class CallKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CALL_KIND_UNSPECIFIED: _ClassVar[CallKind]
    CALL_COLLECTIVE: _ClassVar[CallKind]
    CALL_P2P_SEND: _ClassVar[CallKind]
    CALL_P2P_RECV: _ClassVar[CallKind]
    CALL_STORE: _ClassVar[CallKind]

class RecipeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECIPE_KIND_UNSPECIFIED: _ClassVar[RecipeKind]
    RECIPE_EMBEDDING: _ClassVar[RecipeKind]
    RECIPE_BLOCK: _ClassVar[RecipeKind]
    RECIPE_HEAD: _ClassVar[RecipeKind]
    RECIPE_OPTIMIZER: _ClassVar[RecipeKind]

class RecipeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECIPE_MODE_UNSPECIFIED: _ClassVar[RecipeMode]
    RECIPE_SEEDED: _ClassVar[RecipeMode]
    RECIPE_TEMPLATE: _ClassVar[RecipeMode]
    RECIPE_BROADCAST: _ClassVar[RecipeMode]

class RecipeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECIPE_STATE_UNSPECIFIED: _ClassVar[RecipeState]
    RECIPE_LEARNING: _ClassVar[RecipeState]
    RECIPE_READY: _ClassVar[RecipeState]
    RECIPE_DISABLED: _ClassVar[RecipeState]
PROCESS_STATUS_UNSPECIFIED: ProcessStatus
PROCESS_RUNNING: ProcessStatus
PROCESS_STOPPED_STATE: ProcessStatus
PROCESS_GONE: ProcessStatus
PROCESS_UNKNOWN: ProcessStatus
CALL_STATE_UNSPECIFIED: CallState
CALL_PENDING: CallState
CALL_DONE: CallState
CALL_FAILED: CallState
CALL_KIND_UNSPECIFIED: CallKind
CALL_COLLECTIVE: CallKind
CALL_P2P_SEND: CallKind
CALL_P2P_RECV: CallKind
CALL_STORE: CallKind
RECIPE_KIND_UNSPECIFIED: RecipeKind
RECIPE_EMBEDDING: RecipeKind
RECIPE_BLOCK: RecipeKind
RECIPE_HEAD: RecipeKind
RECIPE_OPTIMIZER: RecipeKind
RECIPE_MODE_UNSPECIFIED: RecipeMode
RECIPE_SEEDED: RecipeMode
RECIPE_TEMPLATE: RecipeMode
RECIPE_BROADCAST: RecipeMode
RECIPE_STATE_UNSPECIFIED: RecipeState
RECIPE_LEARNING: RecipeState
RECIPE_READY: RecipeState
RECIPE_DISABLED: RecipeState

class NodeEvidence(_message.Message):
    __slots__ = ("job", "generation", "node", "incarnation", "version", "world_size", "texts", "groups", "signatures", "ranks", "hashes", "recipes", "replays", "seen")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    RECIPES_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    node: str
    incarnation: int
    version: int
    world_size: int
    texts: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedCompositeFieldContainer[GroupIdentity]
    signatures: _containers.RepeatedCompositeFieldContainer[CallSignature]
    ranks: _containers.RepeatedCompositeFieldContainer[RankEvidence]
    hashes: _containers.RepeatedScalarFieldContainer[int]
    recipes: _containers.RepeatedCompositeFieldContainer[RecipeIdentity]
    replays: _containers.RepeatedCompositeFieldContainer[ReplaySignature]
    seen: _containers.RepeatedCompositeFieldContainer[SeenDeath]
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., node: _Optional[str] = ..., incarnation: _Optional[int] = ..., version: _Optional[int] = ..., world_size: _Optional[int] = ..., texts: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[_Union[GroupIdentity, _Mapping]]] = ..., signatures: _Optional[_Iterable[_Union[CallSignature, _Mapping]]] = ..., ranks: _Optional[_Iterable[_Union[RankEvidence, _Mapping]]] = ..., hashes: _Optional[_Iterable[int]] = ..., recipes: _Optional[_Iterable[_Union[RecipeIdentity, _Mapping]]] = ..., replays: _Optional[_Iterable[_Union[ReplaySignature, _Mapping]]] = ..., seen: _Optional[_Iterable[_Union[SeenDeath, _Mapping]]] = ...) -> None: ...

class SeenDeath(_message.Message):
    __slots__ = ("rank", "age_ns")
    RANK_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    age_ns: int
    def __init__(self, rank: _Optional[int] = ..., age_ns: _Optional[int] = ...) -> None: ...

class RecipeIdentity(_message.Message):
    __slots__ = ("recipe", "group", "peers", "kind", "mode", "state", "name", "reason")
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    recipe: int
    group: int
    peers: int
    kind: RecipeKind
    mode: RecipeMode
    state: RecipeState
    name: int
    reason: int
    def __init__(self, recipe: _Optional[int] = ..., group: _Optional[int] = ..., peers: _Optional[int] = ..., kind: _Optional[_Union[RecipeKind, str]] = ..., mode: _Optional[_Union[RecipeMode, str]] = ..., state: _Optional[_Union[RecipeState, str]] = ..., name: _Optional[int] = ..., reason: _Optional[int] = ...) -> None: ...

class ReplaySignature(_message.Message):
    __slots__ = ("recipe", "group", "key", "scheme", "step", "signed", "values", "differing", "nonfinite")
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DIFFERING_FIELD_NUMBER: _ClassVar[int]
    NONFINITE_FIELD_NUMBER: _ClassVar[int]
    recipe: int
    group: int
    key: int
    scheme: int
    step: int
    signed: int
    values: _containers.RepeatedScalarFieldContainer[int]
    differing: int
    nonfinite: int
    def __init__(self, recipe: _Optional[int] = ..., group: _Optional[int] = ..., key: _Optional[int] = ..., scheme: _Optional[int] = ..., step: _Optional[int] = ..., signed: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ..., differing: _Optional[int] = ..., nonfinite: _Optional[int] = ...) -> None: ...

class GroupIdentity(_message.Message):
    __slots__ = ("id", "name", "description", "backend", "members_known", "runs")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: int
    description: int
    backend: int
    members_known: bool
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., name: _Optional[int] = ..., description: _Optional[int] = ..., backend: _Optional[int] = ..., members_known: bool = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class CallSignature(_message.Message):
    __slots__ = ("kind", "operation", "dtype", "numel", "argument", "shape")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    NUMEL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    kind: CallKind
    operation: int
    dtype: int
    numel: int
    argument: int
    shape: int
    def __init__(self, kind: _Optional[_Union[CallKind, str]] = ..., operation: _Optional[int] = ..., dtype: _Optional[int] = ..., numel: _Optional[int] = ..., argument: _Optional[int] = ..., shape: _Optional[int] = ...) -> None: ...

class RankEvidence(_message.Message):
    __slots__ = ("rank", "pid", "local_rank", "device", "observed", "process", "coordinates", "heartbeat_age_ns", "silent_ns", "attached_age_ns", "calls", "groups", "notes", "activity", "stack", "recipes", "replays")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    SILENT_NS_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    RECIPES_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    local_rank: int
    device: int
    observed: bool
    process: ProcessEvidence
    coordinates: _containers.RepeatedCompositeFieldContainer[CoordinateEvidence]
    heartbeat_age_ns: int
    silent_ns: int
    attached_age_ns: int
    calls: _containers.RepeatedCompositeFieldContainer[CallEvidence]
    groups: _containers.RepeatedCompositeFieldContainer[GroupEvidence]
    notes: _containers.RepeatedCompositeFieldContainer[DeathNoteEvidence]
    activity: ActivityEvidence
    stack: StackEvidence
    recipes: _containers.RepeatedScalarFieldContainer[int]
    replays: _containers.RepeatedCompositeFieldContainer[ReplayEvidence]
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., local_rank: _Optional[int] = ..., device: _Optional[int] = ..., observed: bool = ..., process: _Optional[_Union[ProcessEvidence, _Mapping]] = ..., coordinates: _Optional[_Iterable[_Union[CoordinateEvidence, _Mapping]]] = ..., heartbeat_age_ns: _Optional[int] = ..., silent_ns: _Optional[int] = ..., attached_age_ns: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[CallEvidence, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupEvidence, _Mapping]]] = ..., notes: _Optional[_Iterable[_Union[DeathNoteEvidence, _Mapping]]] = ..., activity: _Optional[_Union[ActivityEvidence, _Mapping]] = ..., stack: _Optional[_Union[StackEvidence, _Mapping]] = ..., recipes: _Optional[_Iterable[int]] = ..., replays: _Optional[_Iterable[_Union[ReplayEvidence, _Mapping]]] = ...) -> None: ...

class ReplayEvidence(_message.Message):
    __slots__ = ("signature", "module_ns", "gather_ns", "age_ns")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    MODULE_NS_FIELD_NUMBER: _ClassVar[int]
    GATHER_NS_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    signature: int
    module_ns: int
    gather_ns: int
    age_ns: int
    def __init__(self, signature: _Optional[int] = ..., module_ns: _Optional[int] = ..., gather_ns: _Optional[int] = ..., age_ns: _Optional[int] = ...) -> None: ...

class ProcessEvidence(_message.Message):
    __slots__ = ("status", "exit_code", "signal", "gone_age_ns", "stopped_age_ns", "oom")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    GONE_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    OOM_FIELD_NUMBER: _ClassVar[int]
    status: ProcessStatus
    exit_code: int
    signal: int
    gone_age_ns: int
    stopped_age_ns: int
    oom: bool
    def __init__(self, status: _Optional[_Union[ProcessStatus, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., gone_age_ns: _Optional[int] = ..., stopped_age_ns: _Optional[int] = ..., oom: bool = ...) -> None: ...

class CoordinateEvidence(_message.Message):
    __slots__ = ("step", "ordinal", "phase", "operation", "age_ns", "waiting", "thread")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    step: int
    ordinal: int
    phase: _verdict_pb2.Phase
    operation: int
    age_ns: int
    waiting: bool
    thread: int
    def __init__(self, step: _Optional[int] = ..., ordinal: _Optional[int] = ..., phase: _Optional[_Union[_verdict_pb2.Phase, str]] = ..., operation: _Optional[int] = ..., age_ns: _Optional[int] = ..., waiting: bool = ..., thread: _Optional[int] = ...) -> None: ...

class CallEvidence(_message.Message):
    __slots__ = ("group", "group_id", "sequence", "state", "signature", "age_ns", "waiting", "recorder", "peer", "tag", "left_age_ns", "sends", "receives")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RECORDER_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    LEFT_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    RECEIVES_FIELD_NUMBER: _ClassVar[int]
    group: int
    group_id: int
    sequence: int
    state: CallState
    signature: int
    age_ns: int
    waiting: bool
    recorder: bool
    peer: int
    tag: int
    left_age_ns: int
    sends: _containers.RepeatedScalarFieldContainer[int]
    receives: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[int] = ..., group_id: _Optional[int] = ..., sequence: _Optional[int] = ..., state: _Optional[_Union[CallState, str]] = ..., signature: _Optional[int] = ..., age_ns: _Optional[int] = ..., waiting: bool = ..., recorder: bool = ..., peer: _Optional[int] = ..., tag: _Optional[int] = ..., left_age_ns: _Optional[int] = ..., sends: _Optional[_Iterable[int]] = ..., receives: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupEvidence(_message.Message):
    __slots__ = ("group", "enqueued", "retired", "as_of_age_ns", "history", "history_last")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    AS_OF_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    HISTORY_LAST_FIELD_NUMBER: _ClassVar[int]
    group: int
    enqueued: int
    retired: int
    as_of_age_ns: int
    history: _containers.RepeatedScalarFieldContainer[int]
    history_last: int
    def __init__(self, group: _Optional[int] = ..., enqueued: _Optional[int] = ..., retired: _Optional[int] = ..., as_of_age_ns: _Optional[int] = ..., history: _Optional[_Iterable[int]] = ..., history_last: _Optional[int] = ...) -> None: ...

class DeathNoteEvidence(_message.Message):
    __slots__ = ("source", "kind", "message", "location", "user_location", "age_ns")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    USER_LOCATION_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    source: int
    kind: int
    message: int
    location: int
    user_location: int
    age_ns: int
    def __init__(self, source: _Optional[int] = ..., kind: _Optional[int] = ..., message: _Optional[int] = ..., location: _Optional[int] = ..., user_location: _Optional[int] = ..., age_ns: _Optional[int] = ...) -> None: ...

class ActivityEvidence(_message.Message):
    __slots__ = ("window_ns", "cpu_ratio", "io_bytes_per_s", "stack_moving")
    WINDOW_NS_FIELD_NUMBER: _ClassVar[int]
    CPU_RATIO_FIELD_NUMBER: _ClassVar[int]
    IO_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    STACK_MOVING_FIELD_NUMBER: _ClassVar[int]
    window_ns: int
    cpu_ratio: float
    io_bytes_per_s: float
    stack_moving: bool
    def __init__(self, window_ns: _Optional[int] = ..., cpu_ratio: _Optional[float] = ..., io_bytes_per_s: _Optional[float] = ..., stack_moving: bool = ...) -> None: ...

class StackEvidence(_message.Message):
    __slots__ = ("frames", "age_ns", "native", "waits", "refused")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[FrameEvidence]
    age_ns: int
    native: bool
    waits: bool
    refused: int
    def __init__(self, frames: _Optional[_Iterable[_Union[FrameEvidence, _Mapping]]] = ..., age_ns: _Optional[int] = ..., native: bool = ..., waits: bool = ..., refused: _Optional[int] = ...) -> None: ...

class FrameEvidence(_message.Message):
    __slots__ = ("function", "file", "line", "native")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    function: int
    file: int
    line: int
    native: bool
    def __init__(self, function: _Optional[int] = ..., file: _Optional[int] = ..., line: _Optional[int] = ..., native: bool = ...) -> None: ...
