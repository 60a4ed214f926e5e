"""valkey-glide, plain: python valkey_glide_client.py PORT"""

import asyncio
import sys

from events import restart
from glide import (
    Batch,
    ExpirySet,
    ExpiryType,
    GlideClient,
    GlideClientConfiguration,
    NodeAddress,
    Script,
)


async def patiently(action):
    for _ in range(400):
        try:
            return await action()
        except Exception as error:
            last = error
            await asyncio.sleep(0.05)
    raise last


async def main():
    node = NodeAddress("127.0.0.1", int(sys.argv[1]))
    config = GlideClientConfiguration([node], database_id=3, request_timeout=2000)
    client = await GlideClient.create(config)
    await client.flushdb()
    assert await client.set("{t}a", "1", expiry=ExpirySet(ExpiryType.SEC, 600)) == "OK"
    assert await client.mget(["{t}a", "absent"]) == [b"1", None]
    assert await client.incr("{t}a") == 2 and 590 < await client.ttl("{t}a") <= 600
    batch = Batch(is_atomic=True)
    batch.set("{t}b", "x")
    batch.append("{t}b", "y")
    batch.get("{t}b")
    assert await client.exec(batch, raise_on_error=True) == ["OK", 2, b"xy"]
    other = await GlideClient.create(config)
    await client.watch(["{t}a"])
    await other.set("{t}a", "9")
    refused = Batch(is_atomic=True)
    refused.set("{t}a", "10")
    assert await client.exec(refused, raise_on_error=True) is None
    script = Script(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
    )
    assert await client.invoke_script(script, keys=["{t}a"], args=["1"]) == 0
    assert await client.invoke_script(script, keys=["{t}a"], args=["9"]) == 1
    await asyncio.to_thread(restart)
    assert await patiently(lambda: client.get("{t}b")) == b"xy"
    assert await client.invoke_script(script, keys=["{t}b"], args=["xy"]) == 1
    await client.mset({"{t}c": "1", "{t}d": "2"})
    found, cursor = set(), b"0"
    while True:
        cursor, keys = await client.scan(cursor, match="{t}*", count=100)
        found.update(keys)
        if cursor == b"0":
            break
    assert found == {b"{t}c", b"{t}d"}, found
    await client.close()
    await other.close()


asyncio.run(main())
print("ok")
