import { describe, expect, it } from 'vitest';
import { nextFire, whereTo } from './words';

describe('triggers in words', () => {
  it('say where their turns go', () => {
    expect([undefined, {}, { session_id: 's' }, { label: 'news' }, { key: 'k' }].map(whereTo)).toEqual([
      'into a new session each time',
      'into a new session each time',
      'into one session',
      'into the session labelled news',
      'into the session of the key k',
    ]);
  });

  it('say when they fire, or why not', () => {
    expect(nextFire({ paused: true, next_fire_at: 5 })).toBe('paused');
    expect(nextFire({ paused: false, next_fire_at: null })).toBe('never fires again');
    expect(nextFire({ paused: false, next_fire_at: 1_800_000_000_000 })).toMatch(/^next .*2027/);
  });
});
