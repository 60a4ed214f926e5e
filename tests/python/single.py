"""redis-py's Redis against the entry port and a direct port: single.py ENTRY_PORT DIRECT_PORT."""

import sys

import redis


def main() -> None:
    entry = int(sys.argv[1])
    for protocol in (2, 3):
        client = redis.Redis(port=entry, protocol=protocol, decode_responses=True)
        assert client.ping()
        client.flushall()
        assert client.set("a", "1")
        assert client.get("a") == "1"
        assert client.set("a", "2", nx=True) is None
        assert client.set("a", "2", get=True) == "1"
        assert client.set("t", "x", ex=100) and 90 < client.ttl("t") <= 100
        assert client.set("t", "y", keepttl=True) and client.ttl("t") > 90
        assert client.persist("t") and client.ttl("t") == -1
        assert client.incr("n") == 1 and client.incrby("n", 41) == 42
        assert client.append("a", "3") == 2 and client.strlen("a") == 2
        assert client.mset({f"m{i}": i for i in range(50)})
        assert client.mget([f"m{i}" for i in range(50)]) == [str(i) for i in range(50)]
        assert client.exists("m1", "m2", "nope") == 2
        assert client.delete("m1", "m2", "nope") == 2
        assert client.rename("{r}1", "{r}2") if client.set("{r}1", "v") else False
        assert client.getdel("{r}2") == "v" and client.get("{r}2") is None
        assert client.type("a") == "string"
        assert client.dbsize() == len(client.keys("*"))
        assert set(client.scan_iter(count=5)) == set(client.keys("*"))
        with client.pipeline(transaction=False) as pipe:
            for i in range(1000):
                pipe.set(f"p{i}", i).get(f"p{i}")
            replies = pipe.execute()
        assert replies[1::2] == [str(i) for i in range(1000)]
        try:
            client.incr("a" * 3) if client.set("aaa", "word") else None
        except redis.ResponseError as error:
            assert "not an integer" in str(error), error
        else:
            raise AssertionError("INCR of a word succeeded")
        assert client.info()["cluster_enabled"] == 1
        assert client.config_get("save") is not None
        assert client.client_id() > 0
        assert client.command_count() > 40
        raw = redis.Redis(port=entry, protocol=protocol)
        blob = bytes(range(256)) * 1000
        assert raw.set(b"\x00bin\r\n", blob) and raw.get(b"\x00bin\r\n") == blob


main()
