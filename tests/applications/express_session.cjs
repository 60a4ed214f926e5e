// express-session with connect-redis: node express_session.cjs PORT
const assert = require("node:assert");
const express = require("express");
const session = require("express-session");
const { RedisStore } = require("connect-redis");
const { createClient } = require("redis");
const { restart, patiently, run } = require("./events.cjs");

run(async () => {
  const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}` });
  client.on("error", () => {});
  await client.connect();
  const store = new RedisStore({ client, prefix: "app:", ttl: 600 });
  const app = express();
  app.use(session({ store, secret: "s", resave: false, saveUninitialized: false, rolling: true }));
  app.get("/add", (request, response) => {
    request.session.n = (request.session.n || 0) + 1;
    response.json({ n: request.session.n });
  });
  app.get("/leave", (request, response) => request.session.destroy(() => response.json({})));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const visitor = () => {
    let cookie = "";
    return async (path) => {
      const response = await fetch(`http://127.0.0.1:${server.address().port}${path}`, { headers: { cookie } });
      cookie = (response.headers.get("set-cookie") || cookie).split(";")[0];
      return (await response.json()).n;
    };
  };
  const one = visitor();
  const other = visitor();
  assert.deepEqual([await one("/add"), await one("/add"), await other("/add")], [1, 2, 1]);
  await restart();
  await patiently(() => client.ping());
  assert.equal(await one("/add"), 3);
  const ask = (name, ...args) =>
    new Promise((done, failed) => store[name](...args, (error, value) => (error ? failed(error) : done(value))));
  assert.equal(await ask("length"), 2);
  assert.equal((await ask("ids")).length, 2);
  assert.deepEqual((await ask("all")).map((each) => each.n).sort(), [1, 3]);
  await one("/leave");
  assert.equal(await one("/add"), 1);
  assert.equal(await other("/add"), 2);
  await ask("clear");
  assert.equal(await other("/add"), 1);
});
