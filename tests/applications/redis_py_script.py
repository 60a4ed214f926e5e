"""redis-py's register_script at a direct port and through RedisCluster: python redis_py_script.py ENTRY DIRECT"""

import sys

import redis
from redis.cluster import RedisCluster

ADD = "local n = redis.call('incrby', KEYS[1], ARGV[1]) redis.call('set', KEYS[2], n) return {n, redis.call('get', KEYS[2])}"

cluster = RedisCluster(host="127.0.0.1", port=int(sys.argv[2]), decode_responses=True)
cluster.flushall()
own = cluster.get_primaries()[0]
at = redis.Redis(port=own.port, decode_responses=True)
tags = [f"t{n}" for n in range(200)]
here = [tag for tag in tags if cluster.get_node_from_key(tag) == own]
assert 0 < len(here) < len(tags)

for client, served in ((at, here), (cluster, tags)):
    client.script_flush()
    add = client.register_script(ADD)
    assert client.script_exists(add.sha) == [False]
    for tag in served:
        keys = [f"{{{tag}}}a", f"{{{tag}}}b"]
        n = int(client.get(keys[0]) or 0)
        assert add(keys=keys, args=[5]) == [n + 5, str(n + 5)]
        assert client.mget(keys) == [str(n + 5)] * 2
    assert client.script_exists(add.sha) == [True]

try:
    at.register_script(ADD)(keys=["{x}a", "{y}b"], args=[1])
    raise SystemExit("keys of two slots")
except redis.ResponseError as error:
    assert "hash to the same slot" in str(error), error
script = at.register_script("return redis.call('incr', KEYS[1])")
at.script_flush()
for tag in here[:10]:
    # One transaction, and one without.
    for n, pipe in ((1, at.pipeline()), (2, at.pipeline(transaction=False))):
        script(keys=[f"{{{tag}}}c"], client=pipe)
        script(keys=[f"{{{tag}}}d"], client=pipe)
        assert pipe.execute() == [n, n]
print("ok")
