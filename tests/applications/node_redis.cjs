// node-redis, plain: node node_redis.cjs PORT
const assert = require("node:assert");
const { createClient, createClientPool, defineScript } = require("redis");
const { restart, patiently, run } = require("./events.cjs");

const compareAndDelete = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end',
  parseCommand: (parser, key, value) => (parser.pushKey(key), parser.push(value)),
  transformReply: (reply) => reply,
});

run(async () => {
  for (const RESP of [2, 3]) {
    const options = { url: `redis://127.0.0.1:${process.argv[2]}/3`, RESP, scripts: { compareAndDelete } };
    const client = createClient(options);
    client.on("error", () => {});
    await client.connect();
    await client.flushDb();
    assert.equal(await client.set("{t}a", "1", { expiration: { type: "EX", value: 600 } }), "OK");
    assert.deepEqual(await client.mGet(["{t}a", "absent"]), ["1", null]);
    const pipelined = await Promise.all([client.incr("{t}a"), client.ttl("{t}a"), client.get("{t}a")]);
    assert.equal(pipelined[0], 2);
    assert.equal(pipelined[2], "2");
    assert.deepEqual(await client.multi().set("{t}b", "x").append("{t}b", "y").get("{t}b").exec(), ["OK", 2, "xy"]);
    const pool = createClientPool(options, { minimum: 2 });
    pool.on("error", () => {});
    await pool.connect();
    const watched = pool.execute(async (own) => {
      await own.watch("{t}a");
      await client.set("{t}a", "9");
      return own.multi().set("{t}a", "10").exec();
    });
    await assert.rejects(watched, /watched keys/i);
    assert.equal(await client.compareAndDelete("{t}a", "1"), 0);
    assert.equal(await client.compareAndDelete("{t}a", "9"), 1);

    const subscriber = client.duplicate();
    subscriber.on("error", () => {});
    await subscriber.connect();
    let heard = [];
    await subscriber.subscribe("news", (text) => heard.push(text));
    await subscriber.pSubscribe("n?ws", (text) => heard.push(text));
    assert.equal(await client.publish("news", "hello"), 2);
    await patiently(async () => assert.deepEqual(heard, ["hello", "hello"]));

    await restart();
    await patiently(() => client.ping());
    assert.equal(await client.get("{t}b"), "xy");
    assert.equal(await client.compareAndDelete("{t}b", "xy"), 1);
    heard = [];
    // It has subscribed again by itself.
    await patiently(async () => assert.equal(await client.publish("news", "again"), 2));
    await patiently(async () => assert.deepEqual(heard.slice(-2), ["again", "again"]));
    await client.mSet({ "{t}c": "1", "{t}d": "2" });
    const keys = [];
    for await (const found of client.scanIterator({ MATCH: "{t}*", COUNT: 100 })) keys.push(...[found].flat());
    assert.deepEqual(keys.sort(), ["{t}c", "{t}d"]);
    for (const each of [client, subscriber, pool]) each.destroy();
  }
});
