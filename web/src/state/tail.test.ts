import { describe, expect, it } from 'vitest';
import type { Message } from '../api/types';
import { joinTail } from './tail';

const said = (id: string, text = id): Message => ({ id, role: 'user', parts: [{ type: 'text', text }] });
const ids = (messages: Message[]) => messages.map((message) => message.id);

describe('joinTail', () => {
  it('keeps what was read before, when the tail still joins', () => {
    const joined = joinTail([said('1'), said('2'), said('3')], [said('2'), said('3'), said('4')], false);
    expect([ids(joined.messages), joined.kept]).toEqual([['1', '2', '3', '4'], true]);
  });

  it('takes the tail alone when it is everything', () => {
    const joined = joinTail([said('1'), said('2')], [said('2')], true);
    expect([ids(joined.messages), joined.kept]).toEqual([['2'], false]);
  });

  it('takes the tail alone when nothing joins', () => {
    expect(joinTail([said('1')], [said('8'), said('9')], false)).toEqual({ messages: [said('8'), said('9')], kept: false });
  });

  it('keeps the object of what did not change, and only that', () => {
    const [one, two] = [said('1'), said('2')];
    const { messages } = joinTail([one, two], [said('1'), said('2', 'more')], true);
    expect(messages[0]).toBe(one);
    expect(messages[1]).toEqual(said('2', 'more'));
  });

  it('drops what was typed and never stored', () => {
    expect(ids(joinTail([said('1'), said('typed')], [said('1')], true).messages)).toEqual(['1']);
  });
});
