import { describe, expect, it } from 'vitest';
import type { Message } from '../api/types';
import { joinTail } from './tail';

const said = (id: string, text = id): Message => ({ id, role: 'user', parts: [{ type: 'text', text }] });
const ids = (messages: Message[]) => messages.map((message) => message.id);

describe('joinTail', () => {
  it('keeps older messages if the tail still connects', () => {
    const joined = joinTail([said('1'), said('2'), said('3')], [said('2'), said('3'), said('4')], false);
    expect([ids(joined.messages), joined.connected]).toEqual([['1', '2', '3', '4'], true]);
  });

  it('uses the tail alone if it is everything', () => {
    const joined = joinTail([said('1'), said('2')], [said('2')], true);
    expect([ids(joined.messages), joined.connected]).toEqual([['2'], false]);
  });

  it('uses the tail alone if nothing connects', () => {
    expect(joinTail([said('1')], [said('8'), said('9')], false)).toEqual({ messages: [said('8'), said('9')], connected: false });
  });

  it('keeps the objects of unchanged messages only', () => {
    const [one, two] = [said('1'), said('2')];
    const { messages } = joinTail([one, two], [said('1'), said('2', 'more')], true);
    expect(messages[0]).toBe(one);
    expect(messages[1]).toEqual(said('2', 'more'));
  });

  it('drops messages that were never stored', () => {
    expect(ids(joinTail([said('1'), said('typed')], [said('1')], true).messages)).toEqual(['1']);
  });
});
