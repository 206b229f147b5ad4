"""One module per command, and how results are printed.

What a command does belongs in `services`.
"""

import gc

# Imports make many objects and no garbage. With Python's own threshold, a command would look for
# garbage a hundred times, which takes 4 % of its processor time.
gc.set_threshold(50_000)
