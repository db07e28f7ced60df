// Answers requests of the Go tests, one JSON object per line, with one of the
// clients: `node main.mjs openai-chat`. A request has an id, a talk it belongs
// to, and an op, which is a method of the talk; open makes the talk.

const { open, refusal } = await import(`./${process.argv[2]}.mjs`);
const talks = new Map();

async function answer({ talk, op, args }) {
  if (op === 'open') {
    talks.set(talk, open(args));
    return {};
  }
  return talks.get(talk)[op](args);
}

async function serve(line) {
  const request = JSON.parse(line);
  const reply = { id: request.id };
  try {
    reply.result = await answer(request);
  } catch (err) {
    reply.error = { message: String(err?.stack ?? err), ...refusal(err) };
  }
  process.stdout.write(JSON.stringify(reply) + '\n');
}

// Lines can have megabytes, so that their pieces are put together only once.
let pieces = [];
for await (const chunk of process.stdin) {
  let from = 0;
  for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
    pieces.push(chunk.subarray(from, at));
    void serve(Buffer.concat(pieces).toString());
    pieces = [];
    from = at + 1;
  }
  pieces.push(chunk.subarray(from));
}
