"""torchrun for the demo: the same launcher, which ends without a traceback when it is told to end."""

import logging
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import main

if __name__ == "__main__":
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.ERROR)
    try:
        main()
    except SignalException as told:
        sys.exit(128 + told.sigval)
