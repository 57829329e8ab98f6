from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Sealed(_message.Message):
    __slots__ = ("header", "body", "mac")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    header: bytes
    body: bytes
    mac: bytes
    def __init__(self, header: _Optional[bytes] = ..., body: _Optional[bytes] = ..., mac: _Optional[bytes] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("protocol", "job", "generation", "node", "session", "counter")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    job: str
    generation: int
    node: str
    session: bytes
    counter: int
    def __init__(self, protocol: _Optional[int] = ..., job: _Optional[str] = ..., generation: _Optional[int] = ..., node: _Optional[str] = ..., session: _Optional[bytes] = ..., counter: _Optional[int] = ...) -> None: ...

class Greeting(_message.Message):
    __slots__ = ("challenge",)
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    challenge: bytes
    def __init__(self, challenge: _Optional[bytes] = ...) -> None: ...

class Marks(_message.Message):
    __slots__ = ("node", "address", "incarnation", "version", "beat", "held")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    node: _containers.RepeatedScalarFieldContainer[str]
    address: _containers.RepeatedScalarFieldContainer[str]
    incarnation: _containers.RepeatedScalarFieldContainer[int]
    version: _containers.RepeatedScalarFieldContainer[int]
    beat: _containers.RepeatedScalarFieldContainer[int]
    held: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[_Iterable[str]] = ..., address: _Optional[_Iterable[str]] = ..., incarnation: _Optional[_Iterable[int]] = ..., version: _Optional[_Iterable[int]] = ..., beat: _Optional[_Iterable[int]] = ..., held: _Optional[_Iterable[int]] = ...) -> None: ...

class Columns(_message.Message):
    __slots__ = ("roster", "version", "beat", "held", "position")
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    roster: int
    version: _containers.RepeatedScalarFieldContainer[int]
    beat: _containers.RepeatedScalarFieldContainer[int]
    held: _containers.RepeatedScalarFieldContainer[int]
    position: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, roster: _Optional[int] = ..., version: _Optional[_Iterable[int]] = ..., beat: _Optional[_Iterable[int]] = ..., held: _Optional[_Iterable[int]] = ..., position: _Optional[_Iterable[int]] = ...) -> None: ...

class Blobs(_message.Message):
    __slots__ = ("mark", "data", "age_ns")
    MARK_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    AGE_NS_FIELD_NUMBER: _ClassVar[int]
    mark: Marks
    data: _containers.RepeatedScalarFieldContainer[bytes]
    age_ns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, mark: _Optional[_Union[Marks, _Mapping]] = ..., data: _Optional[_Iterable[bytes]] = ..., age_ns: _Optional[_Iterable[int]] = ...) -> None: ...

class Tally(_message.Message):
    __slots__ = ("group", "recipe", "key", "scheme", "peers", "camps", "times")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    CAMPS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    group: int
    recipe: int
    key: int
    scheme: int
    peers: int
    camps: _containers.RepeatedCompositeFieldContainer[Camp]
    times: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[int] = ..., recipe: _Optional[int] = ..., key: _Optional[int] = ..., scheme: _Optional[int] = ..., peers: _Optional[int] = ..., camps: _Optional[_Iterable[_Union[Camp, _Mapping]]] = ..., times: _Optional[_Iterable[int]] = ...) -> None: ...

class Camp(_message.Message):
    __slots__ = ("value", "runs")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    value: int
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, value: _Optional[int] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("marks", "alarm_ns", "tallies", "roster", "known")
    MARKS_FIELD_NUMBER: _ClassVar[int]
    ALARM_NS_FIELD_NUMBER: _ClassVar[int]
    TALLIES_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    marks: Marks
    alarm_ns: int
    tallies: _containers.RepeatedCompositeFieldContainer[Tally]
    roster: int
    known: int
    def __init__(self, marks: _Optional[_Union[Marks, _Mapping]] = ..., alarm_ns: _Optional[int] = ..., tallies: _Optional[_Iterable[_Union[Tally, _Mapping]]] = ..., roster: _Optional[int] = ..., known: _Optional[int] = ...) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("marks", "alarm_ns", "tallies", "roster", "known")
    MARKS_FIELD_NUMBER: _ClassVar[int]
    ALARM_NS_FIELD_NUMBER: _ClassVar[int]
    TALLIES_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    marks: Marks
    alarm_ns: int
    tallies: _containers.RepeatedCompositeFieldContainer[Tally]
    roster: int
    known: int
    def __init__(self, marks: _Optional[_Union[Marks, _Mapping]] = ..., alarm_ns: _Optional[int] = ..., tallies: _Optional[_Iterable[_Union[Tally, _Mapping]]] = ..., roster: _Optional[int] = ..., known: _Optional[int] = ...) -> None: ...

class RelayRequest(_message.Message):
    __slots__ = ("node", "address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class RelayResponse(_message.Message):
    __slots__ = ("reached", "marks")
    REACHED_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    reached: bool
    marks: Marks
    def __init__(self, reached: bool = ..., marks: _Optional[_Union[Marks, _Mapping]] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("marks", "alarm_ns", "tallies", "columns")
    MARKS_FIELD_NUMBER: _ClassVar[int]
    ALARM_NS_FIELD_NUMBER: _ClassVar[int]
    TALLIES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    marks: Marks
    alarm_ns: int
    tallies: _containers.RepeatedCompositeFieldContainer[Tally]
    columns: Columns
    def __init__(self, marks: _Optional[_Union[Marks, _Mapping]] = ..., alarm_ns: _Optional[int] = ..., tallies: _Optional[_Iterable[_Union[Tally, _Mapping]]] = ..., columns: _Optional[_Union[Columns, _Mapping]] = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("blobs", "wanted", "marks", "tallies", "columns", "strange")
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    TALLIES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    STRANGE_FIELD_NUMBER: _ClassVar[int]
    blobs: Blobs
    wanted: _containers.RepeatedScalarFieldContainer[str]
    marks: Marks
    tallies: _containers.RepeatedCompositeFieldContainer[Tally]
    columns: Columns
    strange: bool
    def __init__(self, blobs: _Optional[_Union[Blobs, _Mapping]] = ..., wanted: _Optional[_Iterable[str]] = ..., marks: _Optional[_Union[Marks, _Mapping]] = ..., tallies: _Optional[_Iterable[_Union[Tally, _Mapping]]] = ..., columns: _Optional[_Union[Columns, _Mapping]] = ..., strange: bool = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("blobs",)
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    blobs: Blobs
    def __init__(self, blobs: _Optional[_Union[Blobs, _Mapping]] = ...) -> None: ...

class PushResponse(_message.Message):
    __slots__ = ("taken",)
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    taken: int
    def __init__(self, taken: _Optional[int] = ...) -> None: ...

class OrderRequest(_message.Message):
    __slots__ = ("request", "recipe", "variants", "expires_ns")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_NS_FIELD_NUMBER: _ClassVar[int]
    request: int
    recipe: int
    variants: int
    expires_ns: int
    def __init__(self, request: _Optional[int] = ..., recipe: _Optional[int] = ..., variants: _Optional[int] = ..., expires_ns: _Optional[int] = ...) -> None: ...

class OrderResponse(_message.Message):
    __slots__ = ("ranks", "refused")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranks: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[int]] = ...) -> None: ...

class LayoutRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LayoutResponse(_message.Message):
    __slots__ = ("topology",)
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    topology: bytes
    def __init__(self, topology: _Optional[bytes] = ...) -> None: ...
