from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Symptom(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYMPTOM_UNSPECIFIED: _ClassVar[Symptom]
    HANG: _ClassVar[Symptom]
    STRAGGLER: _ClassVar[Symptom]
    SDC: _ClassVar[Symptom]
    SLOWDOWN: _ClassVar[Symptom]
    NODE_LOSS: _ClassVar[Symptom]

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_UNSPECIFIED: _ClassVar[Status]
    AGREE: _ClassVar[Status]
    ATTRIBUTED: _ClassVar[Status]
    INCONCLUSIVE: _ClassVar[Status]

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    OPEN: _ClassVar[State]
    CONFIRMED: _ClassVar[State]
    RESOLVED: _ClassVar[State]
    SUPPRESSED: _ClassVar[State]

class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAUSE_UNSPECIFIED: _ClassVar[Cause]
    RANK_STALLED: _ClassVar[Cause]
    PROCESS_DEAD: _ClassVar[Cause]
    PROCESS_STOPPED: _ClassVar[Cause]
    NODE_UNREACHABLE: _ClassVar[Cause]
    COLLECTIVE_MISMATCH: _ClassVar[Cause]
    COLLECTIVE_MISSING: _ClassVar[Cause]
    COLLECTIVE_ORDER: _ClassVar[Cause]
    DEVICE_STALL: _ClassVar[Cause]
    GROUP_STALL: _ClassVar[Cause]
    STORE_WAIT: _ClassVar[Cause]
    COMPUTE_STRAGGLER: _ClassVar[Cause]
    INPUT_STRAGGLER: _ClassVar[Cause]
    COMM_STRAGGLER_NODE: _ClassVar[Cause]
    COMM_STRAGGLER_LINK: _ClassVar[Cause]
    COMM_STRAGGLER_NETWORK: _ClassVar[Cause]
    COMM_STRAGGLER_CLUSTER: _ClassVar[Cause]
    GROUP_SLOWDOWN: _ClassVar[Cause]
    SDC_OUTPUT: _ClassVar[Cause]
    SDC_GRADIENT: _ClassVar[Cause]
    SDC_PARAMETER: _ClassVar[Cause]
    SDC_OPTIMIZER: _ClassVar[Cause]
    SDC_BROADCAST: _ClassVar[Cause]
    STATE_DIVERGENCE: _ClassVar[Cause]
    NONFINITE: _ClassVar[Cause]

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    RANK: _ClassVar[Scope]
    NODE: _ClassVar[Scope]
    GROUP: _ClassVar[Scope]
    JOB: _ClassVar[Scope]

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    INIT: _ClassVar[Phase]
    INPUT: _ClassVar[Phase]
    FORWARD: _ClassVar[Phase]
    BACKWARD: _ClassVar[Phase]
    OPTIMIZER: _ClassVar[Phase]
    COLLECTIVE: _ClassVar[Phase]
    CHECKPOINT: _ClassVar[Phase]
    COMPILE: _ClassVar[Phase]
    EVAL: _ClassVar[Phase]
    STORE: _ClassVar[Phase]
    EXITING: _ClassVar[Phase]
    BETWEEN: _ClassVar[Phase]

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    NONE: _ClassVar[Action]
    OBSERVE: _ClassVar[Action]
    RESTART_IN_PLACE: _ClassVar[Action]
    REPLACE_NODE: _ClassVar[Action]
    DIAGNOSE_HARDWARE: _ClassVar[Action]
    DIAGNOSE_NETWORK: _ClassVar[Action]
    FIX_PROGRAM: _ClassVar[Action]
SYMPTOM_UNSPECIFIED: Symptom
HANG: Symptom
STRAGGLER: Symptom
SDC: Symptom
SLOWDOWN: Symptom
NODE_LOSS: Symptom
STATUS_UNSPECIFIED: Status
AGREE: Status
ATTRIBUTED: Status
INCONCLUSIVE: Status
STATE_UNSPECIFIED: State
OPEN: State
CONFIRMED: State
RESOLVED: State
SUPPRESSED: State
CAUSE_UNSPECIFIED: Cause
RANK_STALLED: Cause
PROCESS_DEAD: Cause
PROCESS_STOPPED: Cause
NODE_UNREACHABLE: Cause
COLLECTIVE_MISMATCH: Cause
COLLECTIVE_MISSING: Cause
COLLECTIVE_ORDER: Cause
DEVICE_STALL: Cause
GROUP_STALL: Cause
STORE_WAIT: Cause
COMPUTE_STRAGGLER: Cause
INPUT_STRAGGLER: Cause
COMM_STRAGGLER_NODE: Cause
COMM_STRAGGLER_LINK: Cause
COMM_STRAGGLER_NETWORK: Cause
COMM_STRAGGLER_CLUSTER: Cause
GROUP_SLOWDOWN: Cause
SDC_OUTPUT: Cause
SDC_GRADIENT: Cause
SDC_PARAMETER: Cause
SDC_OPTIMIZER: Cause
SDC_BROADCAST: Cause
STATE_DIVERGENCE: Cause
NONFINITE: Cause
SCOPE_UNSPECIFIED: Scope
RANK: Scope
NODE: Scope
GROUP: Scope
JOB: Scope
PHASE_UNSPECIFIED: Phase
INIT: Phase
INPUT: Phase
FORWARD: Phase
BACKWARD: Phase
OPTIMIZER: Phase
COLLECTIVE: Phase
CHECKPOINT: Phase
COMPILE: Phase
EVAL: Phase
STORE: Phase
EXITING: Phase
BETWEEN: Phase
ACTION_UNSPECIFIED: Action
NONE: Action
OBSERVE: Action
RESTART_IN_PLACE: Action
REPLACE_NODE: Action
DIAGNOSE_HARDWARE: Action
DIAGNOSE_NETWORK: Action
FIX_PROGRAM: Action

class Implicated(_message.Message):
    __slots__ = ("rank", "node", "pid", "device", "reason")
    RANK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rank: int
    node: str
    pid: int
    device: str
    reason: str
    def __init__(self, rank: _Optional[int] = ..., node: _Optional[str] = ..., pid: _Optional[int] = ..., device: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Cleared(_message.Message):
    __slots__ = ("rank", "waits_for", "reason")
    RANK_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rank: int
    waits_for: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    def __init__(self, rank: _Optional[int] = ..., waits_for: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ...) -> None: ...

class EvidenceItem(_message.Message):
    __slots__ = ("rank", "kind", "text")
    RANK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    kind: str
    text: str
    def __init__(self, rank: _Optional[int] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("function", "file", "line", "native")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    function: str
    file: str
    line: int
    native: bool
    def __init__(self, function: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., native: bool = ...) -> None: ...

class Stack(_message.Message):
    __slots__ = ("rank", "frames", "refused")
    RANK_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    rank: int
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    refused: str
    def __init__(self, rank: _Optional[int] = ..., frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., refused: _Optional[str] = ...) -> None: ...

class DeathNote(_message.Message):
    __slots__ = ("rank", "source", "type", "message", "location", "user_location")
    RANK_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    USER_LOCATION_FIELD_NUMBER: _ClassVar[int]
    rank: int
    source: str
    type: str
    message: str
    location: str
    user_location: str
    def __init__(self, rank: _Optional[int] = ..., source: _Optional[str] = ..., type: _Optional[str] = ..., message: _Optional[str] = ..., location: _Optional[str] = ..., user_location: _Optional[str] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("choice", "step", "id")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    choice: str
    step: int
    id: str
    def __init__(self, choice: _Optional[str] = ..., step: _Optional[int] = ..., id: _Optional[str] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("id", "job", "generation", "symptom", "status", "state", "cause", "scope", "phase", "operation", "implicated", "cleared", "peer_group", "evidence", "stacks", "death_notes", "action", "checkpoint", "summary", "opened_at", "confirmed_at", "detection_latency_ms", "suppressed_because", "onset_at", "closed_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SYMPTOM_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    IMPLICATED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    PEER_GROUP_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    DEATH_NOTES_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_AT_FIELD_NUMBER: _ClassVar[int]
    DETECTION_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    ONSET_AT_FIELD_NUMBER: _ClassVar[int]
    CLOSED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    job: str
    generation: int
    symptom: Symptom
    status: Status
    state: State
    cause: Cause
    scope: Scope
    phase: Phase
    operation: str
    implicated: _containers.RepeatedCompositeFieldContainer[Implicated]
    cleared: _containers.RepeatedCompositeFieldContainer[Cleared]
    peer_group: _containers.RepeatedScalarFieldContainer[int]
    evidence: _containers.RepeatedCompositeFieldContainer[EvidenceItem]
    stacks: _containers.RepeatedCompositeFieldContainer[Stack]
    death_notes: _containers.RepeatedCompositeFieldContainer[DeathNote]
    action: Action
    checkpoint: Checkpoint
    summary: str
    opened_at: str
    confirmed_at: str
    detection_latency_ms: float
    suppressed_because: str
    onset_at: str
    closed_at: str
    def __init__(self, id: _Optional[str] = ..., job: _Optional[str] = ..., generation: _Optional[int] = ..., symptom: _Optional[_Union[Symptom, str]] = ..., status: _Optional[_Union[Status, str]] = ..., state: _Optional[_Union[State, str]] = ..., cause: _Optional[_Union[Cause, str]] = ..., scope: _Optional[_Union[Scope, str]] = ..., phase: _Optional[_Union[Phase, str]] = ..., operation: _Optional[str] = ..., implicated: _Optional[_Iterable[_Union[Implicated, _Mapping]]] = ..., cleared: _Optional[_Iterable[_Union[Cleared, _Mapping]]] = ..., peer_group: _Optional[_Iterable[int]] = ..., evidence: _Optional[_Iterable[_Union[EvidenceItem, _Mapping]]] = ..., stacks: _Optional[_Iterable[_Union[Stack, _Mapping]]] = ..., death_notes: _Optional[_Iterable[_Union[DeathNote, _Mapping]]] = ..., action: _Optional[_Union[Action, str]] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., summary: _Optional[str] = ..., opened_at: _Optional[str] = ..., confirmed_at: _Optional[str] = ..., detection_latency_ms: _Optional[float] = ..., suppressed_because: _Optional[str] = ..., onset_at: _Optional[str] = ..., closed_at: _Optional[str] = ...) -> None: ...
