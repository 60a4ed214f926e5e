"""redis-py's Lock from several threads: python redis_py_lock.py PORT"""

import sys
import threading
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError

client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
client.set("counter", 0)


def work():
    own = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
    for _ in range(10):
        with own.lock("lock", timeout=10, sleep=0.001):
            value = int(own.get("counter"))
            own.set("counter", value + 1)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert client.get("counter") == "40", client.get("counter")

lock = client.lock("lock", timeout=1)
assert lock.acquire(blocking=False)
assert not client.lock("lock").acquire(blocking=False)
assert lock.owned() and lock.locked()
assert lock.extend(2) and 1000 < client.pttl("lock") <= 3000
assert lock.extend(1, replace_ttl=True) and client.pttl("lock") <= 1000
assert lock.reacquire()
time.sleep(1.1)
try:
    lock.release()
    raise SystemExit("a lock that has expired was released")
except LockNotOwnedError:
    pass
try:
    lock.release()
    raise SystemExit("a lock was released twice")
except LockError:
    pass
other = client.lock("lock", timeout=5)
assert other.acquire(blocking=False)
other.release()
assert client.get("lock") is None
print("ok")
