"""redlock-py: python redlock_py.py PORT"""

import sys

import redis
from events import patiently, restart
from redlock import Redlock

servers = [{"host": "127.0.0.1", "port": int(sys.argv[1]), "db": 3}]
redlock = Redlock(servers, retry_count=1)
lock = redlock.lock("resource", 600_000)
assert lock and lock.validity > 500_000
assert not redlock.lock("resource", 600_000)
restart()
patiently(redis.Redis(port=int(sys.argv[1])).ping)
other = Redlock(servers, retry_count=1)
assert not other.lock("resource", 600_000)
other.unlock(lock._replace(key="not its key"))
assert not other.lock("resource", 600_000)
other.unlock(lock)
assert other.lock("resource", 600_000)
print("ok")
