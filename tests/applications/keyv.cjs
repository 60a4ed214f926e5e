// keyv with @keyv/redis: node keyv.cjs PORT
const assert = require("node:assert");
const { default: KeyvRedis } = require("@keyv/redis");
const { Keyv } = require("keyv");
const { restart, patiently, run } = require("./events.cjs");

run(async () => {
  const store = new KeyvRedis(`redis://127.0.0.1:${process.argv[2]}/6`);
  const keyv = new Keyv({ store, namespace: "users", useKeyPrefix: false });
  const other = new Keyv({ store: new KeyvRedis(`redis://127.0.0.1:${process.argv[2]}/6`), namespace: "cats" });
  for (const each of [keyv, other]) each.on("error", () => {});
  assert.equal(await keyv.set("a", { n: [1, "x"] }), true);
  await keyv.set("soon", "gone", 100);
  await keyv.setMany([
    { key: "b", value: 2 },
    { key: "c", value: 3, ttl: 600000 },
  ]);
  await other.set("a", "another");
  assert.deepEqual(await keyv.get("a"), { n: [1, "x"] });
  await restart();
  await patiently(async () => assert.deepEqual(await keyv.get("a"), { n: [1, "x"] }));
  await new Promise((done) => setTimeout(done, 120));
  assert.deepEqual(await keyv.getMany(["b", "c", "soon"]), [2, 3, undefined]);
  assert.equal(await keyv.has("b"), true);
  assert.equal(await keyv.delete("b"), true);
  const keys = [];
  for await (const [key] of keyv.iterator("users")) keys.push(key);
  assert.deepEqual(keys.sort(), ["a", "c"]);
  await keyv.clear();
  assert.equal(await keyv.get("a"), undefined);
  await patiently(async () => assert.equal(await other.get("a"), "another"));
});
