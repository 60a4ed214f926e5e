// node-redis with its client-side cache: node node_redis_cache.cjs PORT
const assert = require("node:assert");
const { createClient } = require("redis");

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

async function main() {
  const url = `redis://127.0.0.1:${process.argv[2]}`;
  const clientSideCache = { ttl: 0, maxEntries: 0, evictPolicy: "LRU" };
  const cached = createClient({ url, RESP: 3, clientSideCache });
  const writer = createClient({ url });
  await cached.connect();
  await writer.connect();
  const keys = Array.from({ length: 20 }, (_, n) => `key:${n}`);
  for (let round = 0; round < 30; round++) {
    for (const key of keys) await writer.set(key, `${round}`);
    for (let tries = 0; ; tries++) {
      const values = await Promise.all(keys.map((key) => cached.get(key)));
      if (values.every((value) => value === `${round}`)) break;
      assert(tries < 500, `${values} in round ${round}`);
      await wait(10);
    }
    const { missCount, hitCount } = cached.clientSideCache.stats();
    const again = await Promise.all(keys.map((key) => cached.get(key)));
    assert(again.every((value) => value === `${round}`));
    const stats = cached.clientSideCache.stats();
    assert.equal(stats.missCount, missCount);
    assert.equal(stats.hitCount, hitCount + keys.length);
  }
  await writer.flushAll();
  for (let tries = 0; (await cached.get("key:0")) !== null; tries++) {
    assert(tries < 500, "it was not told of the flush");
    await wait(10);
  }
  cached.destroy();
  writer.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
