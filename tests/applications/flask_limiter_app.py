"""limits and flask-limiter: python flask_limiter_app.py PORT"""

import sys
import time

import limits
from events import patiently, restart
from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

uri = f"redis://127.0.0.1:{sys.argv[1]}/2"
storage = limits.storage.storage_from_string(uri)
assert storage.check()

app = Flask(__name__)
limiter = Limiter(
    get_remote_address, app=app, storage_uri=uri, default_limits=["5 per hour"]
)


@app.route("/")
def index():
    return "fine"


@app.route("/free")
@limiter.exempt
def free():
    return "fine"


client = app.test_client()
codes = [client.get("/").status_code for _ in range(3)]
fixed = limits.strategies.FixedWindowRateLimiter(storage)
sliding = limits.strategies.SlidingWindowCounterRateLimiter(storage)
limit = limits.parse("4 per hour")
for limiter_of in (fixed, sliding):
    name = type(limiter_of).__name__
    assert [limiter_of.hit(limit, name) for _ in range(3)] == [True] * 3

restart()
patiently(storage.check)
codes += [client.get("/").status_code for _ in range(3)]
assert codes == [200] * 5 + [429], codes
assert client.get("/free").status_code == 200
for limiter_of in (fixed, sliding):
    name = type(limiter_of).__name__
    assert limiter_of.test(limit, name)
    assert limiter_of.hit(limit, name) and not limiter_of.hit(limit, name)
    assert not limiter_of.test(limit, name)
    stats = limiter_of.get_window_stats(limit, name)
    assert stats.remaining == 0 and stats.reset_time > time.time()
    limiter_of.clear(limit, name)
    assert limiter_of.hit(limit, name)
print("ok")
