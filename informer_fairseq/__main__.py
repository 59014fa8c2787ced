"""``python -m informer_fairseq``: the same as the console script ``informer-fairseq``."""

import sys

from informer_fairseq.tools.main import main

sys.exit(main())
