import { expect, test } from 'vitest';
import { asText, editOf, exitCode, summarizeInput, outputText, liveOutput, subagentOf, subagentProgress, tookMs, toolName, toolState, type ToolPart } from './tool_part';

const part = (state: string, more: Partial<ToolPart> = {}): ToolPart => ({ type: 'tool-bash', toolCallId: 'c', state, ...more });

test('the gist is the most informative field, in one line', () => {
  expect(summarizeInput('bash', { command: 'ls -l\n  | wc', timeout_ms: 5 })).toBe('ls -l | wc');
  expect(summarizeInput('write', { content: 'long', path: 'a.txt' })).toBe('a.txt');
  expect(summarizeInput('grep', { path: 'src', pattern: 'x+' })).toBe('x+');
  expect(summarizeInput('todo', { items: [{}, {}] })).toBe('2 items');
  expect(summarizeInput('weather', { town: 'Ulm' })).toBe('{"town":"Ulm"}');
  expect(summarizeInput('ls', {})).toBe('');
  expect(summarizeInput('x', undefined)).toBe('');
  expect(summarizeInput('bash', { command: 'x'.repeat(500) })).toBe(`${'x'.repeat(160)}…`);
});

test('an edit is counted by its lines, once for the same input', () => {
  const input = { path: 'a', old: 'one\ntwo', new: 'one\n2\nthree' };
  const edit = editOf('edit', { input });
  expect([edit?.added, edit?.removed]).toEqual([2, 1]);
  expect(editOf('edit', { input })).toBe(edit);
  const removed = editOf('edit', { input: { path: 'a', old: 'one\ntwo', new: '' } });
  expect([removed?.added, removed?.removed]).toEqual([0, 2]);
  expect(editOf('edit', { input: { path: 'a', old: 'one' } })).toBeNull();
  expect(editOf('write', { input })).toBeNull();
});

test('the engine’s change takes precedence over the input', () => {
  const change = { diff: '@@ -1,2 +1,2 @@\n one\n--- two\n+++ 2', added: 1, removed: 1, note: 'a new file' };
  const edit = editOf('write', { input: { path: 'a', content: 'x' }, approval: { id: 'a', descriptor: { change } } });
  expect(edit).toEqual({
    lines: [
      { kind: 'mark', text: '@@ -1,2 +1,2 @@' },
      { kind: 'same', text: 'one' },
      { kind: 'removed', text: '-- two' },
      { kind: 'added', text: '++ 2' },
    ],
    added: 1,
    removed: 1,
    note: 'a new file',
  });
  const done = { ...change, diff: '' };
  expect(editOf('write', { input: {}, approval: { id: 'a', descriptor: { change } }, resultProviderMetadata: { clew: { change: done } } })?.lines).toEqual([]);
  expect(editOf('write', { input: { path: 'a', content: 'x' }, resultProviderMetadata: { clew: { change: { diff: 1 } } } })).toBe(null);
});

test('a subagent reports its progress, and its usage at the end', () => {
  const part = { type: 'tool-task', toolCallId: 'c', state: 'output-available' };
  const running = { ...part, preliminary: true, output: { session_id: 's1', steps: 2, tool: 'read', doing: 'a.txt', text: 'so far', tokens: 1200, cost_usd: 0.5 } };
  expect(subagentProgress(running)).toEqual({ steps: 2, tokens: 1200, cost: 0.5, activity: 'read a.txt', tail: 'so far' });
  expect([liveOutput(running), tookMs(running)]).toEqual([null, null]);
  const done = { ...part, output: { session_id: 's1', text: 'all of it' }, resultProviderMetadata: { clew: { steps: 3, took_ms: 2100 } } };
  expect([subagentProgress(done), tookMs(done)]).toEqual([{ steps: 3, tokens: undefined, cost: undefined }, 2100]);
});
test('a name comes from the part or from its type', () => {
  expect(toolName(part('done'))).toBe('bash');
  expect(toolName(part('done', { type: 'dynamic-tool', toolName: 'mine' }))).toBe('mine');
});

test('states depend on whether the turn is running', () => {
  expect(toolState(part('input-streaming'), true, false)).toBe('preparing');
  expect(toolState(part('input-available'), true, false)).toBe('running');
  expect(toolState(part('input-available'), false, false)).toBe('unfinished');
  expect(toolState(part('input-available'), false, true)).toBe('waiting');
  expect(toolState(part('approval-requested'), false, true)).toBe('waiting');
  expect(toolState(part('approval-responded', { approval: { id: 'a', approved: true } }), true, false)).toBe('running');
  expect(toolState(part('approval-responded', { approval: { id: 'a', approved: false } }), true, false)).toBe('denied');
  // Another call of the step is pending, so nothing is running yet.
  expect(toolState(part('approval-responded', { approval: { id: 'a', approved: true } }), false, false)).toBe('allowed');
  expect(toolState(part('approval-responded', { approval: { id: 'a', approved: true } }), false, false, true)).toBe('unfinished');
  expect(toolState(part('output-error', { errorText: 'denied: this session only reads' }), true, false)).toBe('denied');
  expect(toolState(part('output-available', { preliminary: true }), true, false)).toBe('running');
  expect(toolState(part('output-available'), false, false)).toBe('done');
  expect(toolState(part('output-error'), false, false)).toBe('failed');
  expect(toolState(part('output-denied'), false, false)).toBe('denied');
});

test('text stays as it is, the rest is JSON', () => {
  expect(asText('<b>')).toBe('<b>');
  expect(asText({ a: 1 })).toBe('{\n  "a": 1\n}');
  expect(asText(undefined)).toBe('');
});

test('a command has an exit code, and its output is its text', () => {
  const exited = part('output-available', { output: { text: 'no\n[exit code 7]', exit_code: 7 } });
  expect([exitCode(exited), outputText(exited)]).toEqual([7, 'no\n[exit code 7]']);
  // The format of older versions, and other tools with the same fields.
  const old = part('output-available', { output: 'no\n[exit code 7]' });
  expect([exitCode(old), outputText(old)]).toEqual([null, 'no\n[exit code 7]']);
  expect(exitCode(part('output-available', { type: 'tool-mine', output: { text: 'x', exit_code: 7 } }))).toBe(null);
  expect(exitCode(part('output-available', { output: { exit_code: 7 } }))).toBe(null);
});

test('a subagent is identified by the session in its output', () => {
  expect(subagentOf(part('output-available', { output: { session_id: 'ses_1' } }))).toBe('ses_1');
  expect(subagentOf(part('output-available', { output: { session_id: '../x' } }))).toBe(null);
  expect(subagentOf(part('output-available', { output: 'text' }))).toBe(null);
  const stopped = part('output-error', { errorText: 'aborted', resultProviderMetadata: { clew: { session_id: 'ses_1', steps: 2 } } });
  expect([subagentOf(stopped), subagentProgress(stopped)]).toEqual(['ses_1', { steps: 2, tokens: undefined, cost: undefined }]);
  expect(subagentOf(part('output-error', { errorText: 'aborted' }))).toBe(null);
});
