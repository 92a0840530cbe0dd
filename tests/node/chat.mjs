// Drives the chat of the real AI SDK v6 against a server: one JSON order a line in, one JSON outcome a line out.
//
//   node chat.mjs BASE_URL TOKEN SESSION_ID
//
//   {"do": "send", "text": "...", "body": {...}?, "cut_after": n?, "metadata": {...}?}   send; cut the socket after n text deltas
//   {"do": "edit", "id": "...", "text": "..."}                       send a message in the place of an earlier one
//   {"do": "regenerate", "id": "..."?, "body": {...}?}               ask for another answer; to the newest without an id
//   {"do": "resume"}                                                 come back to what runs, if anything does
//   {"do": "answer", "approved": true, "reason": "..."?}             answer every request; the chat goes on by itself
//   {"do": "load"}                                                   begin anew with what the server has stored
//   {"do": "validate"}                                               does the client take what the server has stored?
//
// Each outcome: {messages, status, error, posts} as the chat holds them now; validate adds {valid, reason}.

import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  safeValidateUIMessages,
} from 'ai';

const [base, token, id] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}` };
const seen = { posts: 0, refusals: [] };
let cutAfter = Infinity;

// What a user's connection does: it breaks in the middle, without anybody saying so.
async function fetchCut(url, options) {
  if (options.method === 'POST') seen.posts += 1;
  const line = new AbortController();
  const response = await fetch(url, { ...options, signal: line.signal });
  if (!response.ok) seen.refusals.push(response.status);
  if (response.body === null) return response;
  let deltas = 0;
  const limit = cutAfter;
  const counted = new TransformStream({
    transform(bytes, controller) {
      controller.enqueue(bytes);
      deltas += Buffer.from(bytes).toString('latin1').split('"text-delta"').length - 1;
      if (deltas >= limit) line.abort(new TypeError('network connection lost'));
    },
  });
  return new Response(response.body.pipeThrough(counted), { status: response.status, headers: response.headers });
}

// The state a user interface would keep. Whoever waits for a status is told.
class State {
  messages = [];
  error = undefined;
  #status = 'ready';
  #waiting = [];

  get status() {
    return this.#status;
  }

  set status(status) {
    this.#status = status;
    this.#waiting = this.#waiting.filter(([wanted, resolve]) => !(wanted(status) && (resolve(), true)));
  }

  until(wanted) {
    return new Promise(resolve => (wanted(this.#status) ? resolve() : this.#waiting.push([wanted, resolve])));
  }

  pushMessage = message => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => void (this.messages = this.messages.with?.(index, message)
    ?? this.messages.map((old, at) => (at === index ? message : old)));
  snapshot = value => structuredClone(value);
}

class Chat extends AbstractChat {}

const state = new State();
const chat = new Chat({
  id,
  state,
  transport: new DefaultChatTransport({ api: `${base}/api/chat`, headers, fetch: fetchCut }),
  sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  onError: () => {},
});

async function stored() {
  const response = await fetch(`${base}/api/sessions/${id}/messages`, { headers });
  return (await response.json()).messages;
}

const orders = {
  async send({ text, body, cut_after, metadata }) {
    cutAfter = cut_after ?? Infinity;
    await chat.sendMessage({ text, metadata }, { body });
    cutAfter = Infinity;
  },

  async edit({ id, text, metadata }) {
    await chat.sendMessage({ text, messageId: id, metadata });
  },

  async regenerate({ id, body }) {
    await chat.regenerate({ messageId: id, body });
  },

  async resume() {
    chat.clearError();
    await chat.resumeStream();
  },

  async answer({ approved, reason }) {
    const open = chat.messages.at(-1).parts.filter(part => part.state === 'approval-requested');
    for (const part of open) {
      await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason });
    }
    await state.until(status => status === 'submitted' || status === 'streaming');
    await state.until(status => status === 'ready' || status === 'error');
  },

  async load() {
    chat.messages = await stored();
  },

  async validate() {
    const result = await safeValidateUIMessages({ messages: await stored() });
    return result.success ? { valid: true } : { valid: false, reason: String(result.error.message) };
  },
};

// Not node:readline: it takes U+2028 for the end of a line, which JSON allows inside a string.
async function* lines(input) {
  let rest = '';
  for await (const text of input.setEncoding('utf8')) {
    const whole = (rest + text).split('\n');
    rest = whole.pop();
    yield* whole;
  }
}

for await (const line of lines(process.stdin)) {
  const order = JSON.parse(line);
  const more = await orders[order.do](order);
  const error = chat.error === undefined ? null : String(chat.error.message);
  const outcome = { messages: chat.messages, status: chat.status, error, ...seen, ...more };
  process.stdout.write(JSON.stringify(outcome) + '\n');
}
