"""dogpile.cache with its distributed lock: python dogpile_cache_app.py PORT"""

import sys
import threading

from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from events import patiently, restart

region = make_region().configure(
    "dogpile.cache.redis",
    expiration_time=600,
    arguments={
        "url": f"redis://127.0.0.1:{sys.argv[1]}/5",
        "redis_expiration_time": 1200,
        "distributed_lock": True,
        "thread_local_lock": False,
    },
)
made = []


@region.cache_on_arguments()
def slow(n):
    made.append(n)
    return {"n": n, "square": n * n}


def all_at_once():
    threads = [threading.Thread(target=slow, args=(7,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


all_at_once()
assert made == [7], made
region.set_multi({"a": 1, "b": [2]})
assert region.get_multi(["a", "b", "c"]) == [1, [2], NO_VALUE]
restart()
patiently(lambda: region.get("a"))
assert slow(7) == {"n": 7, "square": 49} and made == [7], made
slow.invalidate(7)
all_at_once()
assert made == [7, 7], made
region.delete_multi(["a", "b"])
assert region.get("a") is NO_VALUE
mutex = region.backend.get_mutex("mutex")
assert mutex.acquire(False) and not region.backend.get_mutex("mutex").acquire(False)
mutex.release()
print("ok")
