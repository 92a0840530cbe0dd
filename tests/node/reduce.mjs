// Puts questions to the real AI SDK v6: one JSON object a line in, one a line out, in the same order.
//
//   {"mode": "reduce", "chunks": [...], "message": {...}?}   what a client makes of a stream
//       -> {"message": {...} | null, "errors": [...], "refused": "..." | null}
//          errors: texts of `error` chunks. refused: why the client gave up; the message is then as it was before.
//   {"mode": "validate", "messages": [...]}                  whether a client takes stored messages
//       -> {"valid": true} | {"valid": false, "reason": "..."}
//   {"mode": "partial", "texts": [...]}                      the values of JSON texts that may be cut off
//       -> {"values": [{"value": ...} | {}, ...]}            {} where there is no value
//
// Many questions go to one process because starting node costs more than answering.

import { parsePartialJson, readUIMessageStream, safeValidateUIMessages, uiMessageChunkSchema } from 'ai';

const chunkSchema = uiMessageChunkSchema();

// A transport hands the reducer what the schema returned, not what came over the wire; so do we.
async function asReceived(chunk) {
  const result = await chunkSchema.validate(chunk);
  if (!result.success) throw new Error(`the schema takes no such chunk: ${JSON.stringify(chunk)}`);
  return result.value;
}

async function reduce({ chunks, message }) {
  const errors = [];
  let refused = null;
  let latest = message ?? null;
  let id = message?.id ?? '';

  const stream = new ReadableStream({
    async start(controller) {
      try {
        for (const chunk of chunks) {
          if (chunk.type === 'start' && chunk.messageId !== undefined) id = chunk.messageId;
          controller.enqueue(await asReceived(chunk));
        }
        // Not every change is published at once (a new step is not). A start that names the message it is in
        // changes nothing and publishes everything.
        controller.enqueue({ type: 'start', messageId: id });
        controller.close();
      } catch (error) {
        controller.error(error);
      }
    },
  });

  const texts = new Set(chunks.filter(chunk => chunk.type === 'error').map(chunk => chunk.errorText));
  const snapshots = readUIMessageStream({
    message,
    stream,
    onError: error => {
      if (texts.has(error.message)) errors.push(error.message);
      else refused ??= String(error.message);
    },
  });
  for await (const snapshot of snapshots) latest = snapshot;
  return { message: latest, errors, refused };
}

async function validate({ messages }) {
  const result = await safeValidateUIMessages({ messages });
  return result.success ? { valid: true } : { valid: false, reason: String(result.error.message) };
}

async function partial({ texts }) {
  const values = [];
  for (const text of texts) values.push({ value: (await parsePartialJson(text)).value });
  return { values };
}

const modes = { reduce, validate, partial };

// Not node:readline: it takes U+2028 for the end of a line, which JSON allows inside a string.
async function* lines(input) {
  let rest = '';
  for await (const text of input.setEncoding('utf8')) {
    const whole = (rest + text).split('\n');
    rest = whole.pop();
    yield* whole;
  }
  yield rest;
}

for await (const line of lines(process.stdin)) {
  if (line === '') continue;
  const question = JSON.parse(line);
  const answer = await modes[question.mode](question);
  process.stdout.write(JSON.stringify(answer) + '\n');
}
