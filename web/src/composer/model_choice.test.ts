import { beforeEach, expect, test } from 'vitest';
import { afterSend, isName, loadChoice, matching, ownName, saveChoice, splitName, effectiveChoice, variantsOf } from './model_choice';

beforeEach(() => window.localStorage.clear());
const model = (id: string, usable: boolean, variants: string[] = []) => ({ id, usable, window: 1, max_output: 1, variants });

test('only known variants are split off', () => {
  expect(splitName('demo/long:slow')).toEqual({ base: 'demo/long', variant: 'slow' });
  expect(splitName('ollama/llama3:8b')).toEqual({ base: 'ollama/llama3:8b', variant: null });
  expect(splitName('ollama/llama3:8b:high')).toEqual({ base: 'ollama/llama3:8b', variant: 'high' });
  const models = [model('demo/echo', true, ['slow']), model('openai/gpt-4.1', true)];
  expect(['demo/echo', 'openai/gpt-4.1'].map((name) => variantsOf(name, models))).toEqual([['slow'], []]);
  expect(variantsOf('anthropic/x', models).length).toBe(7);
});

test('the session’s model is named without the variant it had for one turn', () => {
  expect(ownName({ provider_id: 'demo', model_id: 'long', variant: 'slow' })).toBe('demo/long');
  expect(ownName(undefined)).toBe('');
});

test('a choice is in effect until the session has the same model', () => {
  expect(effectiveChoice('demo/echo', 'demo/tour')).toBe('demo/echo');
  expect(effectiveChoice('demo/echo', 'demo/echo')).toBe(null);
  expect(effectiveChoice('demo/echo:slow', 'demo/echo')).toBe('demo/echo:slow');
  expect(effectiveChoice(null, 'demo/echo')).toBe(null);
});

test('a variant is sent once', () => {
  expect([afterSend('demo/long:slow'), afterSend('demo/long'), afterSend(null)]).toEqual(['demo/long', 'demo/long', null]);
});

test('models are filtered by words, the usable ones first', () => {
  const models = [model('anthropic/sonnet', false), model('demo/echo', true), model('openai/sonar', true)];
  expect(matching(models, 'SON').map(({ id }) => id)).toEqual(['openai/sonar', 'anthropic/sonnet']);
  expect(matching(models, 'son anth').map(({ id }) => id)).toEqual(['anthropic/sonnet']);
  expect(matching(models, '').map(({ id }) => id)).toEqual(['demo/echo', 'openai/sonar', 'anthropic/sonnet']);
});

test('a choice is stored per session', () => {
  saveChoice('a', 'demo/echo:slow');
  expect([loadChoice('a'), loadChoice('b')]).toEqual(['demo/echo:slow', null]);
  saveChoice('a', null);
  expect(loadChoice('a')).toBe(null);
});

test('a name has a provider and a model', () => {
  expect(['demo/echo', 'a/b/c:x', 'demo', '/x', 'a b/c', 'demo/'].map(isName)).toEqual([true, true, false, false, false, false]);
});
