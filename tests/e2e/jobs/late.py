"""``train.py``, after which rank 0 goes on alone (`late.py SECONDS …`) as if it wrote a last checkpoint."""

from __future__ import annotations

import os
import sys
import time

import torch

from faults import SlowFile
from train import main

if __name__ == "__main__":
    after = float(sys.argv[1])
    main(sys.argv[2:])
    if os.environ["RANK"] == "0":
        file = SlowFile(after)
        torch.save({"weight": torch.ones(1024)}, file)
        file.flush()
        time.sleep(0.1)
