"""django-redis, on database 1, with locks: python django_redis_app.py PORT"""

import sys

from django.conf import settings

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{sys.argv[1]}/1",
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        }
    }
)

from django.core.cache import cache  # noqa: E402
from events import patiently, restart  # noqa: E402

cache.clear()
cache.set("a", {"n": [1, 2.5, "x"]}, 600)
assert cache.get("a") == {"n": [1, 2.5, "x"]} and 590 < cache.ttl("a") <= 600
assert cache.add("a", 1) is False and cache.add("b", 1, 600) is True
assert cache.set("b", 2, nx=True) is False
assert cache.incr("b", 41) == 42 and cache.decr("b") == 41
try:
    cache.incr("absent")
    raise SystemExit("incr of a key that is absent")
except ValueError:
    pass
many = {f"m{n}": n for n in range(50)}
cache.set_many(many, 600)
assert cache.get_many(list(many)) == many
assert cache.expire("a", 500) and 490 < cache.ttl("a") <= 500
assert cache.pexpire("a", 400_000) and 390_000 < cache.pttl("a") <= 400_000
assert cache.persist("a") and cache.ttl("a") is None
assert sorted(cache.keys("m1*")) == sorted(key for key in many if key.startswith("m1"))
assert sorted(cache.iter_keys("m2*")) == sorted(key for key in many if key.startswith("m2"))
lock = cache.lock("lock", timeout=60)
assert lock.acquire(blocking=False)
assert not cache.lock("lock", timeout=60).acquire(blocking=False)
assert lock.extend(30)

restart()
patiently(lambda: cache.get("a"))
assert cache.get_many(list(many)) == many and cache.get("b") == 41
assert not cache.lock("lock", timeout=60).acquire(blocking=False)
lock.release()
with cache.lock("lock", timeout=60):
    assert cache.delete_pattern("m*") == len(many)
assert cache.get_many(list(many)) == {}
assert cache.get_or_set("d", lambda: "made", 60) == "made"
cache.set("v", "old", version=1)
assert cache.incr_version("v") == 2 and cache.get("v", version=2) == "old"
cache.clear()
assert cache.get("a") is None
print("ok")
