// The official client of the Agent Client Protocol, driven from outside: one JSON order a line in, one JSON outcome a line out.
//
//   node acp.mjs COMMAND [WORDS...]            the agent, which it starts itself
//
//   {"do": "start", "capabilities": {...}}     start the agent and say hello
//   {"do": "ask", "method": m, "params": p}    a request, and its answer
//   {"do": "begin", "method": m, "params": p}  a request whose answer is fetched later, by "end"
//   {"do": "end"}
//   {"do": "tell", "method": m, "params": p}   a notification
//   {"do": "permit", "option": id | null}      how requests for permission are answered from now on; null: not at all
//   {"do": "until", "text": t}                 wait until the agent has said this, or has asked: "(asked)"
//   {"do": "until", "chars": n}                wait until it has said so much
//   {"do": "kill"}                             kill -9 the agent, and wait until it is gone
//   {"do": "close"}                            close its stdin, and wait until it is gone
//
// Each outcome: {result?, error?, lines}: lines are all that the agent has written since the outcome before, as it was written.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

const words = process.argv.slice(2);
const asleep = new Promise(() => {});
let agent, context, begun, option = 'once', lines = [], said = '', waiting = [];

function heard(update) {
  if (update.sessionUpdate === 'agent_message_chunk') said += update.content.text ?? '';
  look();
}

function look() {
  waiting = waiting.filter(([is, resolve]) => !(is() && (resolve(), true)));
}

async function start(capabilities) {
  said = '';
  agent = spawn(words[0], words.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
  agent.gone = new Promise((resolve) => agent.once('exit', (code, signal) => resolve({ code, signal })));
  let rest = '';
  const raw = new TransformStream({
    transform(bytes, controller) {
      const parts = (rest + Buffer.from(bytes).toString('utf8')).split('\n');
      rest = parts.pop();
      lines.push(...parts);
      controller.enqueue(bytes);
    },
  });
  const output = Readable.toWeb(agent.stdout).pipeThrough(raw);
  const app = acp
    .client({ name: 'clew-tests' })
    .onNotification(acp.methods.client.session.update, (one) => heard(one.params.update))
    .onRequest(acp.methods.client.session.requestPermission, () => {
      said += '(asked)';
      look();
      if (option === null) return asleep;
      if (option === 'cancelled') return { outcome: { outcome: 'cancelled' } };
      return { outcome: { outcome: 'selected', optionId: option } };
    });
  await new Promise((resolve, reject) => {
    app
      .connectWith(acp.ndJsonStream(Writable.toWeb(agent.stdin), output), async (given) => {
        context = given;
        resolve();
        await agent.gone;
      })
      .catch(reject);
  });
  return context.request('initialize', { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: capabilities ?? {} });
}

const orders = {
  start: (order) => start(order.capabilities),
  ask: (order) => context.request(order.method, order.params),
  begin: (order) => {
    said = ''; // what it said before is no answer to this
    begun = context.request(order.method, order.params).then((result) => ({ result }), (error) => ({ error }));
  },
  end: async () => {
    const { result, error } = await begun;
    if (error !== undefined) throw error;
    return result;
  },
  tell: (order) => context.notify(order.method, order.params),
  permit: (order) => { option = order.option; },
  until: async (order) => {
    const is = () => (order.text === undefined ? said.length >= order.chars : said.includes(order.text));
    await new Promise((resolve) => { waiting.push([is, resolve]); look(); });
    said = '';
  },
  kill: () => { agent.kill('SIGKILL'); return agent.gone; },
  close: () => { agent.stdin.end(); return agent.gone; },
};

process.on('uncaughtException', (error) => console.error(error));
process.on('unhandledRejection', (error) => console.error(error));
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  const outcome = {};
  try {
    outcome.result = await orders[order.do](order);
  } catch (error) {
    outcome.error = { code: error.code ?? null, message: String(error.message ?? error), data: error.data ?? null };
  }
  process.stdout.write(JSON.stringify({ ...outcome, lines: lines.splice(0) }) + '\n');
}
process.exit(0);
