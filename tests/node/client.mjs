// The client of web/client, as a program has it: with a folder, a talk with a server behind a proxy that cuts connections
// and loses answers; without one, a turn of two messages. Prints what it received, as JSON.

import { createServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { BadAnswer, Client, events, frames, start, Turn, Unreachable } from '../../web/client/lib/index.js';

const [what, token, workspace] = process.argv.slice(2);

async function all(source) {
  const held = [];
  for await (const one of source) held.push(one);
  return held;
}

async function refused(work) {
  try {
    await work;
    return null;
  } catch (error) {
    return [error.name, error.code ?? null];
  }
}

async function garbage() {
  const server = createServer((_, answer) => answer.setHeader('content-type', 'text/html').end('<html>'));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new Client(token, `http://127.0.0.1:${server.address().port}`);
  const stream = await refused(all(frames(client, 'GET /api/events')));
  server.close();
  server.closeAllConnections();
  const gone = await refused(start(client, 'ses', 'hello', { patienceMs: 0 }));
  return { stream, gone, kinds: [BadAnswer.name, Unreachable.name], rude: await Promise.all(RUDE.map(rude)) };
}

/** What somebody says who is no clew server: first, and then again and again; and how long that is listened to, in ms. */
const RUDE = [
  [null, null, 200],
  ['HTTP/1.1 200 OK\r\n', 'x: y\r\n'.repeat(1000)],
  ['HTTP/1.1 500 No\r\n\r\n', 'x'.repeat(65536)],
  ['HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n', null, 200],
  ['SSH-2.0-OpenSSH\r\n\r\n', null],
  ['HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok', null],
];

async function rude([first, more, silenceMs]) {
  const server = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => {
      const go = () => {
        while (more && !socket.destroyed && socket.write(more));
      };
      socket.on('drain', go);
      if (first) socket.write(first);
      go();
    });
    open.push(socket);
  });
  const open = [];
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new Client(token, `http://127.0.0.1:${server.address().port}`, undefined, silenceMs);
  const held = await refused(client.call('GET /api/sessions'));
  server.close();
  open.forEach((socket) => socket.destroy());
  return held;
}

async function talk(url) {
  const client = new Client(token, url);
  const made = await client.call('POST /api/sessions', { body: { model: 'demo/long:slow' } });
  const turn = await start(client, made.id, '40 words');
  const cut = await all(turn);
  const again = await all(turn);
  const whole = await all(new Turn(client, made.id, turn.messageId));
  const work = await client.call('POST /api/sessions', { body: { model: 'demo/tools', workspace_root: workspace } });
  const asking = await start(client, work.id, '!bash touch made');
  const before = await all(asking);
  const waiting = await asking.waiting();
  const remaining = await asking.answer(waiting[0].approval_id, 'once');
  const after = await all(asking);
  const listed = await client.call('GET /api/sessions', { query: { limit: 5 } });
  const exported = await client.call('GET /api/sessions/{id}/export', { path: { id: work.id }, query: { format: 'md' } });
  const happening = events(client);
  const { value: hello } = await happening.next();
  await happening.return();
  return {
    ...{ made: made.id, cut, again, whole, before, waiting, remaining, after },
    listed: listed.sessions.map((one) => one.id),
    exported: await exported.text(),
    hello: hello.type,
    missing: await refused(client.call('GET /api/sessions/{id}', { path: { id: `ses_${'0'.repeat(26)}` } })),
    stranger: await refused(new Client('nobody', url).call('GET /api/sessions')),
    garbage: await garbage(),
  };
}

/** A turn that goes on in a second message: at the end of the first one waits until the turn is over. */
async function town(url) {
  const client = new Client(token, url);
  const made = await client.call('POST /api/sessions', { body: {} });
  const turn = await start(client, made.id, 'where?', { output: { type: 'object', properties: { name: {} } } });
  const held = [];
  for await (const chunk of turn) {
    held.push(chunk);
    const path = { id: held[0].messageMetadata.turn_id };
    while (chunk.type === 'finish' && (await client.call('GET /api/turns/{id}', { path })).status === 'running');
  }
  return held;
}

const held = workspace ? await talk(what) : await town(what);
process.stdout.write(JSON.stringify(held));
