"""The reset of all limits: python limits_reset.py PORT"""

import sys

import limits
from events import patiently, restart

storage = limits.storage.storage_from_string(f"redis://127.0.0.1:{sys.argv[1]}/2")
fixed = limits.strategies.FixedWindowRateLimiter(storage)
limit = limits.parse("1 per hour")
assert fixed.hit(limit, "me") and not fixed.hit(limit, "me")
restart()
patiently(storage.check)
assert storage.reset() == 1
assert fixed.hit(limit, "me")
print("ok")
