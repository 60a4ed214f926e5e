// ioredis, plain: node ioredis.cjs PORT
const assert = require("node:assert");
const Redis = require("ioredis");

async function main() {
  const port = Number(process.argv[2]);
  const redis = new Redis({ port, db: 3 });
  await redis.flushdb();
  assert.equal(await redis.set("{t}a", "1", "EX", 60), "OK");
  assert.deepEqual(await redis.mget("{t}a", "absent"), ["1", null]);
  const pipelined = await redis.pipeline().incr("{t}a").ttl("{t}a").get("{t}a").exec();
  assert.deepEqual(pipelined.map(([error]) => error), [null, null, null]);
  assert.equal(pipelined[2][1], "2");
  const together = await redis.multi().set("{t}b", "x").append("{t}b", "y").get("{t}b").exec();
  assert.deepEqual(together, [[null, "OK"], [null, 2], [null, "xy"]]);
  const inline = await redis.multi({ pipeline: false });
  assert.equal(inline, "OK");
  assert.equal(await redis.set("{t}c", "1"), "QUEUED");
  assert.deepEqual(await redis.exec(), [[null, "OK"]]);

  await redis.watch("{t}a");
  const other = new Redis({ port, db: 3 });
  await other.set("{t}a", "9");
  assert.equal(await redis.multi().set("{t}a", "10").exec(), null);
  assert.equal(await redis.get("{t}a"), "9");

  redis.defineCommand("compareAndDelete", {
    numberOfKeys: 1,
    lua: 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end',
  });
  assert.equal(await redis.compareAndDelete("{t}a", "1"), 0);
  assert.equal(await redis.compareAndDelete("{t}a", "9"), 1);
  assert.equal(await redis.exists("{t}a"), 0);

  const seen = [];
  const subscriber = new Redis({ port });
  await subscriber.subscribe("news");
  await subscriber.psubscribe("n?ws");
  const both = new Promise((done) => {
    subscriber.on("message", (channel, text) => seen.push([channel, text]) === 2 && done());
    subscriber.on("pmessage", (_, channel, text) => seen.push([channel, text]) === 2 && done());
  });
  assert.equal(await redis.publish("news", "hello"), 2);
  await both;
  assert.deepEqual(seen, [["news", "hello"], ["news", "hello"]]);

  const keys = [];
  for await (const found of redis.scanStream({ match: "{t}*", count: 100 })) keys.push(...found);
  assert.deepEqual(keys.sort(), ["{t}b", "{t}c"]);
  await Promise.all([redis, other, subscriber].map((client) => client.quit()));

  const cluster = new Redis.Cluster([{ host: "127.0.0.1", port: Number(process.argv[3]) }]);
  await Promise.all(Array.from({ length: 200 }, (_, n) => cluster.set(`k${n}`, n)));
  const read = await Promise.all(Array.from({ length: 200 }, (_, n) => cluster.get(`k${n}`)));
  assert.deepEqual(read, Array.from({ length: 200 }, (_, n) => String(n)));
  const inSlot = await cluster.multi().incr("{u}a").incr("{u}a").exec();
  assert.deepEqual(inSlot, [[null, 1], [null, 2]]);
  await cluster.quit();
  console.log("ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
