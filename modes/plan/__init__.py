"""Plans of training steps: memory, operations and time, before there is a machine to run them on."""

from .devices import DEVICES, Device, UnknownDeviceError
from .ledger import CATEGORIES, Step
from .plan import Plan
from .step import plan_step
from .training import Training, TrainingError

__all__ = [
    "CATEGORIES",
    "DEVICES",
    "Device",
    "Plan",
    "Step",
    "Training",
    "TrainingError",
    "UnknownDeviceError",
    "plan_step",
]
