import { describe, expect, it } from 'vitest';
import { nextFire, whereTo } from './labels';

describe('trigger labels', () => {
  it('describe the target session', () => {
    expect([undefined, {}, { session_id: 's' }, { label: 'news' }, { key: 'k' }].map(whereTo)).toEqual([
      'into a new session each time',
      'into a new session each time',
      'into one session',
      'into the session labelled news',
      'into the session with key k',
    ]);
  });

  it('describe the next time, or why there is none', () => {
    expect(nextFire({ paused: true, next_fire_at: 5 })).toBe('paused');
    expect(nextFire({ paused: false, next_fire_at: null })).toBe('will not fire again');
    expect(nextFire({ paused: false, next_fire_at: 1_800_000_000_000 })).toMatch(/^next .*2027/);
  });
});
