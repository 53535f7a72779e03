"""The namespace ``lamina`` of torch's operators, for those of int8 tensors."""

from __future__ import annotations

import torch

LIBRARY = torch.library.Library("lamina", "FRAGMENT")
