"""redis-py as a cluster client: python redis_py_cluster.py PORT..."""

import sys
import threading

from events import move, patiently, restart
from redis.cluster import ClusterNode, RedisCluster

KEYS = 300

nodes = [ClusterNode("127.0.0.1", int(port)) for port in sys.argv[1:]]
client = RedisCluster(startup_nodes=nodes, decode_responses=True)
for n in range(KEYS):
    client.set(f"k{n}", n)


def read():
    assert [client.get(f"k{n}") for n in range(KEYS)] == [str(n) for n in range(KEYS)]


added, moving, failure = 0, True, []
script = client.register_script("return redis.call('incr', KEYS[1])")


def work():
    global added
    try:
        while moving:
            assert script(keys=["{w}counter"]) == added + 1
            added += 1
            with client.pipeline(transaction=True) as pipe:
                pipe.set("{w}a", added).get("{w}a")
                assert pipe.execute()[1] == str(added)
    except Exception as error:
        failure.append(error)


worker = threading.Thread(target=work)
worker.start()
move()
moving = False
worker.join()
assert not failure, failure
assert client.get("{w}counter") == str(added)
read()
restart()
patiently(read)
print("ok")
