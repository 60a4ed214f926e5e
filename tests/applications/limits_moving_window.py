"""The moving window of limits: python limits_moving_window.py PORT"""

import sys

import limits
from events import patiently, restart

storage = limits.storage.storage_from_string(f"redis://127.0.0.1:{sys.argv[1]}/2")
moving = limits.strategies.MovingWindowRateLimiter(storage)
limit = limits.parse("4 per hour")
assert moving.hit(limit, "me")
restart()
patiently(storage.check)
assert [moving.hit(limit, "me") for _ in range(4)] == [True] * 3 + [False]
print("ok")
