import { describe, expect, it } from 'vitest';
import { age, bytes, cost, count, duration, tokens } from './format';

describe('words', () => {
  it('shortens tokens', () => {
    expect([0, 999, 1000, 1250, 9949, 9950, 34_400, 999_499, 999_500, 1_250_000].map(tokens)).toEqual(['0', '999', '1k', '1.3k', '9.9k', '10k', '34k', '999k', '1M', '1.3M']);
  });

  it('counts', () => {
    expect([count(1, 'turn'), count(2000, 'turn'), count(2, 'branch', 'branches')]).toEqual(['1 turn', '2,000 turns', '2 branches']);
  });

  it('says how long ago', () => {
    expect([0, 61, 7200, 3 * 86_400].map((seconds) => age(0, seconds * 1000))).toEqual(['now', '1 min', '2 h', '3 d']);
  });

  it('never says 60 seconds', () => {
    expect([999.6, 59_960, 119_700].map(duration)).toEqual(['1.0 s', '1 min 0 s', '2 min 0 s']);
  });

  it('formats sizes and costs', () => {
    expect([cost(0), cost(0.0012), cost(1.5), bytes(10), bytes(2048), bytes(3_500_000), duration(12), duration(1500), duration(61_000)]).toEqual(['$0', '$0.0012', '$1.50', '10 B', '2 KB', '3.3 MB', '12 ms', '1.5 s', '1 min 1 s']);
  });
});
