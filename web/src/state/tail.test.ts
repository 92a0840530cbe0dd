import { describe, expect, it } from 'vitest';
import type { Message } from '../api/types';
import { joinTail } from './tail';

const message = (id: string, text = id): Message => ({ id, role: 'user', parts: [{ type: 'text', text }] });
const ids = (messages: Message[]) => messages.map((message) => message.id);

describe('joinTail', () => {
  it('keeps older messages if the tail still connects', () => {
    const joined = joinTail([message('1'), message('2'), message('3')], [message('2'), message('3'), message('4')], false);
    expect([ids(joined.messages), joined.connected]).toEqual([['1', '2', '3', '4'], true]);
  });

  it('uses the tail alone if it is everything', () => {
    const joined = joinTail([message('1'), message('2')], [message('2')], true);
    expect([ids(joined.messages), joined.connected]).toEqual([['2'], false]);
  });

  it('uses the tail alone if nothing connects', () => {
    expect(joinTail([message('1')], [message('8'), message('9')], false)).toEqual({ messages: [message('8'), message('9')], connected: false });
  });

  it('keeps the objects of unchanged messages only', () => {
    const [one, two] = [message('1'), message('2')];
    const { messages } = joinTail([one, two], [message('1'), message('2', 'more')], true);
    expect(messages[0]).toBe(one);
    expect(messages[1]).toEqual(message('2', 'more'));
  });

  it('drops messages that were never stored', () => {
    expect(ids(joinTail([message('1'), message('typed')], [message('1')], true).messages)).toEqual(['1']);
  });
});
