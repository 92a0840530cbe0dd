import { expect, test } from 'vitest';
import { Client } from '../api/client';
import { importFile, groupFiles } from './import_files';

test('subagent files are grouped with the session that their lines name', async () => {
  const main = new File(['{"sessionId":"s1"}'], 's1.jsonl');
  const other = new File(['{"sessionId":"s2"}'], 's2.jsonl');
  const agent = new File(['{"sessionId":"s1","agentId":"a"}'], 'agent-a.jsonl');
  const found = await groupFiles('claude-code', [main, agent, other]);
  const bodies = await Promise.all(found.map(async ({ name, body }) => [name, await body.text()]));
  expect(bodies).toEqual([
    ['s1.jsonl', '{"sessionId":"s1"}\n\f\n{"sessionId":"s1","agentId":"a"}'],
    ['s2.jsonl', '{"sessionId":"s2"}'],
  ]);
  // A file without its session is sent as well, so that its error is reported.
  expect((await groupFiles('claude-code', [other, agent])).map(({ name }) => name)).toEqual(['s2.jsonl', 'agent-a.jsonl']);
  expect((await groupFiles('pi', [agent])).map(({ name }) => name)).toEqual(['agent-a.jsonl']);
});

test('an error is reported for its file, and the others are imported', async () => {
  const asked: string[] = [];
  const client = new Client('token', '', async (input) => {
    asked.push(String(input));
    if (asked.length > 1) return new Response(JSON.stringify({ detail: 'no messages in it', code: 'invalid_input', status: 400, title: 'x' }), { status: 400, headers: { 'content-type': 'application/problem+json' } });
    return new Response(JSON.stringify({ session_id: 's', title: 't', outcome: 'new', turns: 1, subagents: 0, why: null, remarks: [] }));
  });
  const first = await importFile(client, 'pi', 'a.jsonl', new Blob(['{}']));
  const second = await importFile(client, 'pi', 'b.jsonl', new Blob(['{}']));
  expect([first.report?.outcome, first.problem, second.report, /no messages in it/i.test(second.problem ?? '')]).toEqual(['new', null, null, true]);
  expect(asked.every((path) => path.includes('/api/import-from?program=pi'))).toBe(true);
});
