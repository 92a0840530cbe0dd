import { describe, expect, it } from 'vitest';
import type { Message } from '../api/types';
import type { RewoundGroup } from './rewound';
import { timeline } from './timeline';

const message = (id: string, turn: string | undefined, role: Message['role'] = 'user'): Message => ({ id, role, parts: [{ type: 'text', text: id }], metadata: turn ? { turn_id: turn } : {} });
const group = (root: string, after: string | null): RewoundGroup => ({ root, after, turns: [], hidden: 2, covered: false, tip: root });
const keys = (...args: Parameters<typeof timeline>) => timeline(...args).map((item) => item.key);

describe('timeline', () => {
  it('marks where turns begin and end', () => {
    const items = timeline([message('1', 'a'), message('2', 'a', 'assistant'), message('3', 'b')], [], true);
    expect(items.map((item) => item.kind === 'message' && [item.message.id, item.startsTurn, item.endsTurn])).toEqual([
      ['1', true, false],
      ['2', false, true],
      ['3', true, true],
    ]);
  });

  it('divides a turn from the one above it, but not from a visible banner', () => {
    const divisions = (...groups: RewoundGroup[]) =>
      timeline([message('1', 'a'), message('2', 'a', 'assistant'), message('3', 'b')], groups, true).flatMap((item) => (item.kind === 'message' ? [item.divided] : []));
    expect(divisions()).toEqual([false, false, true]);
    expect(divisions(group('x', 'a'))).toEqual([false, false, false]);
    expect(divisions({ ...group('x', 'a'), covered: true })).toEqual([false, false, true]);
    expect(divisions({ ...group('x', null), covered: true })).toEqual([false, false, true]);
  });

  it('puts a banner after the turn it left', () => {
    expect(keys([message('1', 'a'), message('2', 'a'), message('3', 'b')], [group('x', 'a')], true)).toEqual(['1', '2', 'rewound x', '3']);
  });

  it('shows turns before the first message only if all messages are loaded', () => {
    expect(keys([message('1', 'a')], [group('x', null)], true)).toEqual(['rewound x', '1']);
    expect(keys([message('1', 'a')], [group('x', null)], false)).toEqual(['1']);
  });

  it('shows nothing of a turn that is not loaded', () => {
    expect(keys([message('1', 'b')], [group('x', 'a')], false)).toEqual(['1']);
  });

  it('keeps the key of a message whose typed id became a stored one', () => {
    const stored = { ...message('msg_1', 'a'), metadata: { turn_id: 'a', client_message_id: 'typed' } };
    expect(keys([message('typed', undefined)], [], true)).toEqual(keys([stored], [], true));
  });

  it('adds a summary as one item', () => {
    const marker: Message = { id: 'm', role: 'assistant', parts: [{ type: 'data-compaction', data: {} }] as Message['parts'], metadata: { summary: true, turn_id: 'k' } };
    expect(timeline([marker, message('1', 'a')], [], true).map((item) => item.kind)).toEqual(['summary', 'message']);
  });
});
