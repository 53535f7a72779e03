"""LoggingTensor, and the log that it and the modes write to: records, sinks, phases, module paths."""

from .compiled import logged_backend
from .log import Log, NoRecordsError, SinkError, SinkWarning
from .phase import current_phase
from .record import OpRecord, TensorMeta
from .scope import LogHandle, active_log
from .selection import Selection
from .sinks import ChromeTraceSink, JsonLinesSink, ListSink, LoggingSink, Sink
from .tally import Tallied, Tally
from .tensor import LoggingTensor

__all__ = [
    "ChromeTraceSink",
    "JsonLinesSink",
    "ListSink",
    "Log",
    "LogHandle",
    "LoggingSink",
    "LoggingTensor",
    "NoRecordsError",
    "OpRecord",
    "Selection",
    "Sink",
    "SinkError",
    "SinkWarning",
    "Tallied",
    "Tally",
    "TensorMeta",
    "active_log",
    "current_phase",
    "logged_backend",
]
