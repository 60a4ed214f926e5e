// What a script asks of whoever has started it, on its output; it goes on once there is a line on its input.
const lines = require("node:readline").createInterface({ input: process.stdin });
const answers = lines[Symbol.asyncIterator]();

async function ask(what) {
  console.log(what);
  const { done } = await answers.next();
  if (done) throw new Error(`${what} has failed`);
}

// Tries again while connections break.
async function patiently(action, ms = 20000) {
  const until = Date.now() + ms;
  for (;;) {
    try {
      return await action();
    } catch (error) {
      if (Date.now() > until) throw error;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

// Ends with what went wrong, if anything.
function run(main) {
  main().then(
    () => {
      console.log("ok");
      process.exit(0);
    },
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

module.exports = { restart: () => ask("restart"), move: () => ask("move"), patiently, run };
