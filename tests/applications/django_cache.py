"""Django's own Redis cache, on database 1: python django_cache.py PORT"""

import sys
import time

from django.conf import settings

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{sys.argv[1]}/1",
        }
    }
)

from django.core.cache import cache  # noqa: E402

cache.clear()
assert cache.get("a") is None
cache.set("a", {"n": [1, 2.5, "x"]}, 60)
assert cache.get("a") == {"n": [1, 2.5, "x"]}
assert cache.add("a", 1) is False and cache.add("b", 1, 60) is True
assert cache.has_key("b") and "c" not in cache
assert cache.incr("b", 41) == 42 and cache.decr("b") == 41
try:
    cache.incr("absent")
    raise SystemExit("incr of a key that is absent")
except ValueError:
    pass
many = {f"m{n}": n for n in range(50)}
assert cache.set_many(many, 60) == []
assert cache.get_many(list(many)) == many
cache.delete_many([f"m{n}" for n in range(25)])
assert len(cache.get_many(list(many))) == 25
assert cache.touch("a", 1) is True and cache.touch("absent", 1) is False
assert cache.touch("b", None) is True
time.sleep(1.2)
assert cache.get("a") is None and cache.get("b") == 41
assert cache.get_or_set("d", lambda: "made", 60) == "made"
assert cache.delete("d") is True and cache.delete("d") is False
cache.set("v", "old", version=1)
assert cache.get("v", version=2) is None
assert cache.incr_version("v") == 2 and cache.get("v", version=2) == "old"
cache.clear()
assert cache.get("b") is None
print("ok")
