import { expect, test } from 'vitest';
import type { Message, TreeTurn } from '../api/types';
import type { TimelineItem } from '../state/timeline';
import { grewAtStart, itemOf } from './scroll_target';

const message = (id: string, client?: string): Message => ({ id, role: 'user', parts: [], metadata: client ? { client_message_id: client } : {} });
const items: TimelineItem[] = [
  { kind: 'summary', key: 's', message: message('s') },
  { kind: 'message', key: 'c1', message: message('m1', 'c1'), startsTurn: true, endsTurn: true, divided: false },
  { kind: 'rewound', key: 'r', group: { root: 't', after: null, turns: [{ messages: ['h1', 'h2'] } as unknown as TreeTurn], hidden: 2, covered: false, tip: 't' } },
];

test('a message is found by its id, its client id, and in rewound turns', () => {
  expect(itemOf(items, 'm1')).toBe(1);
  expect(itemOf(items, 'c1')).toBe(1);
  expect(itemOf(items, 'h2')).toBe(2);
});

test('any other message is in a summary', () => {
  expect(itemOf(items, 'old')).toBe(0);
  expect(itemOf(items.slice(1), 'old')).toBe(-1);
});

test('only what is put before the first item counts as growing at the start', () => {
  expect(grewAtStart('b', [{ key: 'a' }, { key: 'b' }])).toBe(true);
  expect(grewAtStart('a', [{ key: 'a' }, { key: 'b' }])).toBe(false);
  expect(grewAtStart('gone', [{ key: 'a' }])).toBe(false);
  expect(grewAtStart(undefined, [{ key: 'a' }])).toBe(false);
});
